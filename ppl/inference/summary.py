"""The table of a result: one row for each number drawn, in text, in HTML, as a dict or as a pandas frame.

Columns are those of ArviZ 1: `mean sd eti89_lb eti89_ub ess_bulk ess_tail r_hat mcse_mean mcse_sd`. A printed number
ends where its standard error begins. An array of more than `LONG` numbers is folded to its worst rows.
"""

import dataclasses
import functools
import html
import math
from typing import Any

import numpy as np

from ppl.errors import suggest
from ppl.inference import diagnostics, labels
from ppl.sharding import is_spread

LONG = 20  # an array with more rows than this is folded when printed
WORST = 5  # rows that a folded array shows
FULL = 1000  # rows of a folded array that HTML keeps below it

STYLE = {
    "table": "border-collapse:collapse;margin:0.5em 0",
    "head": "text-align:right;padding:0.2em 0.7em;border-bottom:1px solid rgba(128,128,128,0.6);background:none",
    "number": "text-align:right;padding:0.1em 0.7em;background:none",
    "name": "text-align:left;padding:0.1em 0.7em;background:none",
    "warning": "border-left:4px solid #e08000;background:rgba(224,128,0,0.15);padding:0.3em 0.7em;margin:0.3em 0",
}


def summarize_draws(draws, dims, coords, most=None, moments=None):
    """Return the `Summary` of a mapping of draws `[chain, draw, ...]`.

    Args:
      draws: by name.
      dims: names of axes, by variable.
      coords: labels, by axis.
      most: the largest number of elements read of one variable, evenly spaced; all by default.
      moments: `{"mean": ..., "sd": ...}` by name, of variables whose draws were not kept; other columns are nan.
    """
    parts, columns = [], {name: [] for name in diagnostics.COLUMNS}
    start = 0
    for name, values in draws.items():
        shape = values.shape[2:]
        size, positions = math.prod(shape), None
        if most is not None and size > most:
            positions = np.arange(most) * size // most
            values = few(values, positions)
        for column, numbers in columns_of(values).items():
            columns[column].append(np.ravel(numbers))
        count = size if positions is None else len(positions)
        parts.append(Part(name, shape, start, start + count, positions))
        start += count
    for name, known in (moments or {}).items():
        shape = np.shape(known["mean"])
        for column, arrays in columns.items():
            arrays.append(np.ravel(np.asarray(known.get(column, np.full(shape, np.nan)), float)))
        parts.append(Part(name, shape, start, start + math.prod(shape)))
        start += math.prod(shape)
    joined = {column: np.concatenate(arrays) if arrays else np.zeros(0) for column, arrays in columns.items()}
    return Summary(tuple(parts), joined, dims, coords)


def columns_of(values):
    """Return the columns for draws `[chain, draw, ...]`; for draws on several devices, computed there."""
    if is_spread(values):
        from ppl.inference import spread_summary

        found = spread_summary.summarize(values)
        if found is not None:
            return found
    return diagnostics.summarize(values)


def few(values, positions):
    """Return the draws of the elements at some positions."""
    if is_spread(values):
        from ppl.inference import spread_summary

        return spread_summary.pick(values, positions)
    return values.reshape(*values.shape[:2], -1)[:, :, positions]


@dataclasses.dataclass(frozen=True)
class Part:
    """The rows of one variable, `start` to `stop`; `positions` says which elements were read, if not all."""

    name: str
    shape: tuple
    start: int
    stop: int
    positions: Any = None

    @property
    def size(self):
        """Number of elements of the variable."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """A table of statistics.

        summary["theta[Choate]"]["mean"]      # a number
        summary["theta"]["mean"]              # an array of the shape of theta
        summary.to_pandas(); summary.to_dict()

    Args:
      parts: which rows belong to which variable.
      columns: an array over rows for each statistic.
      dims: names of axes, by variable.
      coords: labels, by axis.
    """

    parts: tuple
    columns: dict[str, np.ndarray]
    dims: dict
    coords: dict

    @functools.cached_property
    def rows(self):
        """The names of the rows: `mu`, `theta[Choate]`, or `theta[0]` without labels."""
        every = (labels.element_labels(p.name, p.shape, self.dims, self.coords, p.positions) for p in self.parts)
        return tuple(row for part in every for row in part)

    def label(self, row):
        """The name of one row, by its number."""
        part = next(part for part in self.parts if row < part.stop)
        position = row - part.start if part.positions is None else int(part.positions[row - part.start])
        return labels.element_labels(part.name, part.shape, self.dims, self.coords, [position])[0]

    def __len__(self):
        return self.parts[-1].stop if self.parts else 0

    def __getitem__(self, name):
        """The statistics of one row, as numbers, or of a whole variable, as arrays of its shape."""
        for part in self.parts:
            if part.name == name and part.positions is None:
                return {
                    column: values[part.start : part.stop].reshape(part.shape)[()]
                    for column, values in self.columns.items()
                }
        if name in self._place:
            return {column: float(values[self._place[name]]) for column, values in self.columns.items()}
        raise KeyError(f"the table has no row {name!r}.{suggest(name, self._place)}")

    @functools.cached_property
    def _place(self):
        return {row: place for place, row in reversed(list(enumerate(self.rows)))}

    def to_dict(self):
        """Return `{row: {column: number}}`."""
        return {row: {c: float(v[place]) for c, v in self.columns.items()} for place, row in enumerate(self.rows)}

    def to_pandas(self):
        """Return a pandas frame, a row for each number drawn."""
        import pandas  # type: ignore[import-untyped, unused-ignore]

        return pandas.DataFrame(self.columns, index=list(self.rows))

    def __str__(self):
        if not len(self):
            return "(no draws)"
        lines = [["", *self.columns]]
        for part in self.parts:
            shown, rest = self._fold(part)
            lines += [[self.label(row), *self._texts(row)] for row in shown]
            if rest:
                lines.append([rest])
        widths = [max(len(line[i]) for line in lines if len(line) > 1) for i in range(len(lines[0]))]
        return "\n".join(_aligned(line, widths) for line in lines)

    __repr__ = __str__

    def _texts(self, row):
        return [_text(column, row, self.columns) for column in self.columns]

    def _fold(self, part):
        """The rows of a variable to show, and a line on the others."""
        rows = np.arange(part.start, part.stop)
        if part.size <= LONG:
            return rows, None
        r_hat, ess = self.columns["r_hat"][rows], self.columns["ess_bulk"][rows]
        order = np.lexsort((np.nan_to_num(ess, nan=np.inf), -np.nan_to_num(r_hat, nan=-np.inf)))
        shown, rest = np.sort(rows[order[:WORST]]), r_hat[order[WORST:]]
        line = f"... and {len(rest):,} more"
        if np.isfinite(rest).any():
            line += f", r_hat at most {np.nanmax(rest):.3f}"
        if part.positions is not None:
            line += f" ({part.size - len(rows):,} others were not read; summary({part.name!r}) reads all)"
        return shown, line

    def _repr_html_(self):
        return page(None, self, (), {})

    def html(self):
        """The table as HTML without script or colors of its own; folded arrays unfold on a click."""
        body, folded = [], []
        for part in self.parts:
            shown, rest = self._fold(part)
            body += [self._html_row(row) for row in shown]
            if rest:
                body.append(
                    f'<tr><td style="{STYLE["name"]}" colspan="{1 + len(self.columns)}">{html.escape(rest)}</td></tr>'
                )
                every = range(part.start, min(part.stop, part.start + FULL))
                cut = f", the first {FULL:,}" if part.stop - part.start > FULL else ""
                title = f"{part.name}: {part.stop - part.start:,} rows{cut}"
                folded.append(_details(title, self._html_table([self._html_row(row) for row in every])))
        return self._html_table(body) + "".join(folded)

    def _html_table(self, body):
        head = "".join(f'<th style="{STYLE["head"]}">{html.escape(text)}</th>' for text in ("", *self.columns))
        return f'<table style="{STYLE["table"]}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'

    def _html_row(self, row):
        cells = "".join(f'<td style="{STYLE["number"]}">{text}</td>' for text in self._texts(row))
        return f'<tr><td style="{STYLE["name"]}">{html.escape(self.label(row))}</td>{cells}</tr>'


def page(header, summary, warnings, details, sentences=()):
    """HTML of a result: a header line, warnings, the table, sentences, folded details; no script, nothing from elsewhere."""
    parts = [f"<div><b>{html.escape(header)}</b></div>"] if header else []
    parts += [f'<div style="{STYLE["warning"]}">{html.escape(sentence)}</div>' for sentence in warnings]
    parts += [summary.html()] if summary is not None else []
    parts += [f"<div>{html.escape(sentence)}</div>" for sentence in sentences]
    rows = "".join(f"<div>{html.escape(title)}: {html.escape(text)}</div>" for title, text in details.items())
    parts += [_details("settings", rows)] if rows else []
    return f"<div>{''.join(parts)}</div>"


def records(**given):
    """Return plain records as text, by their titles, without empty ones."""
    return {
        title: ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items())
        for title, record in given.items()
        if record
    }


def _details(title, inside):
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def _aligned(line, widths):
    if len(line) == 1:
        return f"  {line[0]}"
    return "  ".join([line[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(line[1:], widths[1:], strict=True))])


def _text(column, row, columns):
    value = float(columns[column][row])
    if not math.isfinite(value):
        return str(value)
    if column.startswith("ess"):
        return str(math.floor(value))
    if column == "r_hat":
        return f"{value:.3f}"
    if column.startswith("mcse"):
        return number(value, value / 10.0)  # two digits
    return number(value, float(columns["mcse_sd" if column == "sd" else "mcse_mean"][row]))


def number(value, error):
    """Write `value` up to the first digit of its standard error `error`; three digits where that is unknown."""
    if value == 0.0:
        return "0"
    if not math.isfinite(error) or error <= 0.0:
        return f"{value:.3g}"
    decimals = -math.floor(math.log10(error))
    if abs(value) < 0.5 * 10.0**-decimals:  # no different from 0
        return "0" if not 0 < decimals <= 6 else f"{0:.{decimals}f}"
    if decimals > 6 or abs(value) >= 1e7:
        digits = max(1, math.floor(math.log10(abs(value))) + 1 + decimals)
        return f"{value:.{min(digits, 16) - 1}e}"
    return f"{value:.{decimals}f}" if decimals > 0 else f"{round(value, decimals):.0f}"
