"""The progress line of a variational fit."""

import time

from ppl.inference.progress import Progress, _duration


class StepProgress(Progress):
    """One line about the steps of a fit: how many, how fast, and the objective now.

    Args:
      total: how many steps.
      enabled: False keeps it silent.
      file: where to write; by default the standard error stream.
    """

    def __init__(self, total, enabled=None, file=None):
        super().__init__(total, 0, 1, enabled, file)
        self._objective = None

    def report(self, done, objective):
        """Report steps so far, and the objective at the last one."""
        self._objective = objective
        self.update(0, done)

    def _text(self, done, now):
        parts = [] if self._objective is None else [f"objective {self._objective:.6g}"]
        elapsed = now - self._running
        if elapsed > 0 and done > self._first:
            rate = (done - self._first) / elapsed
            parts += [f"{rate:,.0f} steps/s" if rate >= 100 else f"{rate:.3g} steps/s"]
            parts += [f"{_duration((self.total - done) / rate)} left"]
        return ", ".join(parts)

    def _phase(self):
        return "steps"

    def _summary(self, done, now, note):
        parts = [f"{done:,} steps in {_duration(now - self._started)}"]
        if self._compiled:
            parts.append(f"{_duration((self._running or time.perf_counter()) - self._started)} of it compiling")
        if self._objective is not None:
            parts.append(f"objective {self._objective:.6g}")
        return ", ".join(parts + ([note] if note else []))
