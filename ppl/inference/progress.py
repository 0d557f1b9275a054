"""The progress line: what is happening, how far it is, and how long it will take.

    compiling, about 2 s last time
    draws |######----|  61% 3416/5600, 0 divergences, step 0.41, 7.1 gradients a draw, 9,800 draws/s, 0.2 s left, ...

In a terminal and in a notebook it is one line that changes, made by `tqdm`. In a log file it is a new line for each
tenth of a run that lasts longer than a few seconds, without control characters. `PPL_PROGRESS=off` turns it off.
Reporting reads plain numbers that the driver has anyway, so draws are the same with and without it.
"""

import os
import sys
import threading
import time
import warnings

PERIOD = 0.1  # seconds between two changes of a line in a terminal
PATIENCE = 0.8  # seconds of compiling, and
QUIET = 3.0  # of drawing, before a log file hears about it


class Progress:
    """One line about a run. All methods may be called from any thread, and cost microseconds.

    Args:
      total: transitions of each chain, warm-up included.
      warmup: how many of them are warm-up.
      chains: how many chains run.
      enabled: False keeps it silent. True and None show it.
      file: where to write; by default the standard error stream at the time of the call.
    """

    def __init__(self, total, warmup, chains, enabled=None, file=None):
        self.total, self.warmup, self.chains = int(total), int(warmup), int(chains)
        self.file = sys.stderr if file is None else file
        off = os.environ.get("PPL_PROGRESS", "").lower() in ("off", "0", "no", "false")
        self.enabled = enabled is not False and not off and self.file is not None
        self._bar = None
        self._reports = {}  # chain -> (iteration, divergences, step size, gradients so far)
        self._lock = threading.Lock()
        self._started = self._shown = time.perf_counter()
        self._running = None  # when the first draw was reported
        self._first = 0  # how many transitions had been made by then
        self._recent = None  # (transitions, gradients) at the last line
        self._tenth = 0  # of the run, that a log file last heard of
        self._spoken = False
        self._compiled = False
        self._last_time = None
        self._stop_watching = threading.Event()
        self._live = self.enabled and (_in_notebook() or _is_terminal(self.file))

    def compiling(self, seconds_last_time=None):
        """Say that the program is being compiled, and how long that took the last time if it is known."""
        if not self.enabled:
            return
        self._compiled, self._last_time = True, seconds_last_time
        if self._live:
            self._open()
            self._describe(self._compiling_text(0.0))
        threading.Thread(target=self._watch, daemon=True, name="ppl-progress").start()

    def update(self, chain, iteration, divergences=0, step_size=None, gradients=None):
        """Report a chain: its transitions so far, their divergences and gradients, and its step size now."""
        if not self.enabled:
            return
        self._stop_watching.set()
        self._reports[chain] = (iteration, divergences, step_size, gradients)
        now = time.perf_counter()
        if now - self._shown < PERIOD and self._running is not None:
            return
        if not self._lock.acquire(blocking=False):
            return  # another thread is writing the line
        try:
            done = sum(report[0] for report in list(self._reports.values()))
            if self._running is None:
                self._running, self._first = now, done
            self._shown = now
            if self._live:
                self._show(done, now)
            else:
                self._log(done, now)
        finally:
            self._lock.release()

    def close(self, note=""):
        """End the line; `note` is added to what it says at the end."""
        if not self.enabled:
            return
        self._stop_watching.set()
        with self._lock:
            done = sum(report[0] for report in list(self._reports.values()))
            text = self._summary(done, time.perf_counter(), note)
            if self._live:
                self._open()
                self._bar.bar_format = "{desc}"
                self._bar.n = done
                self._bar.set_description_str(text, refresh=True)
                self._bar.close()
            elif self._spoken:
                self._print(text)
            self.enabled = False

    # What it says

    def _compiling_text(self, seconds):
        known = f", about {_duration(self._last_time)} last time" if self._last_time else ""
        return f"compiling{known}" + (f" ({seconds:.0f} s so far)" if seconds >= 1 else "")

    def _text(self, done, now):
        """Return all but the phase and the count."""
        reports = list(self._reports.values())
        divergences = sum(report[1] for report in reports)
        parts = [f"{divergences} divergence{'' if divergences == 1 else 's'}"]
        steps = [report[2] for report in reports if report[2] is not None]
        if steps:
            parts.append(f"step {sum(steps) / len(steps):.3g}")
        gradients = sum(report[3] or 0 for report in reports)
        if gradients:
            before = self._recent or (0, 0)
            new, work = done - before[0], gradients - before[1]
            if new > 0 and work >= 0:
                parts.append(f"{work / new:.1f} gradients a draw")
            self._recent = (done, gradients)
        elapsed = now - self._running
        if elapsed > 0 and done > self._first:
            rate = (done - self._first) / elapsed
            parts += [f"{rate:.3g} draws/s" if rate < 100 else f"{rate:,.0f} draws/s"]
            parts += [f"{_duration((self.total * self.chains - done) / rate)} left"]
        if self.chains > 1:
            slowest = min(report[0] for report in reports) / max(self.total, 1)
            parts.append(f"slowest chain {100 * slowest:.0f}%")
        return ", ".join(parts)

    def _phase(self):
        warming = any(report[0] < self.warmup for report in list(self._reports.values()))
        return "warm-up" if warming else "draws"

    def _summary(self, done, now, note):
        divergences = sum(report[1] for report in list(self._reports.values()))
        chains = f"{self.chains} chain{'' if self.chains == 1 else 's'}"
        parts = [f"{done:,} draws (warm-up included) of {chains} in {_duration(now - self._started)}"]
        if self._compiled:
            parts.append(f"{_duration((self._running or now) - self._started)} of it compiling")
        parts.append(f"{divergences} divergence{'' if divergences == 1 else 's'}")
        return ", ".join(parts + ([note] if note else []))

    # Where it says it

    def _open(self):
        if self._bar is None:
            with warnings.catch_warnings():  # tqdm warns where it finds no widgets, and then writes text
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm
            columns, lines = _size(self.file)
            known = columns > 0 and lines > 0  # else tqdm would show nothing
            self._bar = tqdm(
                total=self.total * self.chains,
                file=self.file,
                bar_format="{desc}",
                mininterval=0,
                dynamic_ncols=known,
                ncols=None if known else columns or 160,
                nrows=None if known else lines or 24,
            )

    def _describe(self, text):
        self._bar.set_description_str(text, refresh=True)

    def _show(self, done, now):
        self._open()
        bar = "{bar}" if _in_notebook() else "{bar:12}"  # a notebook draws the first kind itself
        self._bar.bar_format = "{desc} |" + bar + "| {percentage:3.0f}% {n_fmt}/{total_fmt}{postfix}"
        self._bar.n = done
        self._bar.postfix = self._text(done, now)
        self._describe(self._phase())

    def _log(self, done, now):
        tenth = 10 * done // max(self.total * self.chains, 1)
        if now - self._running < QUIET or tenth <= self._tenth or tenth == 10:
            return
        self._tenth = tenth
        self._print(f"{self._phase()} {10 * tenth}% ({done}/{self.total * self.chains}), {self._text(done, now)}")

    def _print(self, text):
        self._spoken = True
        try:
            self.file.write(f"ppl: {text}\n")
            self.file.flush()
        except (OSError, ValueError):  # a log file that went away is no reason to lose a run
            self.enabled = False

    def _watch(self):
        """While the main thread waits for the compiler: tell a log file once, and count seconds in a terminal."""
        if not self._live:
            if not self._stop_watching.wait(PATIENCE):
                with self._lock:
                    if not self._stop_watching.is_set():
                        self._print(self._compiling_text(0.0))
            return
        while not self._stop_watching.wait(1.0):
            with self._lock:
                if not self._stop_watching.is_set() and self._bar is not None:
                    self._describe(self._compiling_text(time.perf_counter() - self._started))


def _duration(seconds):
    """Return a time in the words of a person waiting."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _is_terminal(file):
    try:
        return bool(file.isatty())
    except (AttributeError, ValueError):
        return False


def _size(file):
    """Return the columns and lines of a terminal; those of containers and scripts may say 0."""
    try:
        return os.get_terminal_size(file.fileno())
    except (AttributeError, OSError, ValueError):
        return (0, 0)


def _in_notebook():
    """Tell whether this process is the kernel of a notebook, without importing anything."""
    shell = sys.modules.get("ipykernel.zmqshell")
    return shell is not None and shell.ZMQInteractiveShell.initialized()
