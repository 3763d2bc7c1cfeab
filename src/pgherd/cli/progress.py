"""Live progress on stderr: finished trials, the present one, and the remaining time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from pgherd.cli.show import point_words, readings
from pgherd.model.result import TrialResult, counted, counted_by
from pgherd.model.trial import Trial
from pgherd.model.units import format_seconds
from pgherd.runner.observer import RunObserver
from pgherd.runner.time_estimate import TimeEstimate
from pgherd.study.guests import is_emulated

# Redrawing uses CPU of the measured host.
_REDRAWS_PER_SECOND = 1


class TerminalProgress(RunObserver):
    """Progress bar on a terminal. Other outputs get one line per finished trial."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[left]}", markup=False),
            console=console,
            transient=True,
            auto_refresh=self._live,
            refresh_per_second=_REDRAWS_PER_SECOND,
        )
        self._task: TaskID | None = None
        self._remaining = TimeEstimate()
        self._started = 0.0

    def __enter__(self) -> TerminalProgress:
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._progress.stop()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar during a question."""
        if self._live:
            self._progress.stop()
        yield
        if self._live:
            self._progress.start()

    def setup(self, what: str) -> None:
        self._describe(what)

    def planned(self, trials: int, seconds: float) -> None:
        if trials:
            self._remaining.plan(trials, seconds)
            text = f"{trials} trial{'' if trials == 1 else 's'} planned"
            self._describe(text)
            if not self._live:
                left = self._remaining.seconds()
                self._console.print(text if left is None else f"{text}, about {format_seconds(left)}")

    def trial(self, trial: Trial, number: int) -> None:
        self._started = time.monotonic()
        point = point_words(trial)
        self._describe(f"trial {number}: {point}" + ("" if trial.reason == "planned" else f" ({trial.reason})"))

    def finished(self, result: TrialResult) -> None:
        self._remaining.finish(time.monotonic() - self._started, result.trial.seconds())
        point = point_words(result.trial)
        failed = [verdict.name for verdict in result.checks if verdict.taints]
        outcome = f"failed: {result.error}" if result.error else _numbers(result)
        taint = f", tainted: {', '.join(failed)}" if failed else ""
        self._console.print(f"  {result.id}  {point:<16} {outcome}{taint}", highlight=False, markup=False)
        self._describe(f"{self._remaining.trials} trials left")

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def _describe(self, text: str) -> None:
        if not self._live:
            return
        pending = self._remaining.trials
        seconds = self._remaining.seconds()
        left = f"about {format_seconds(seconds)} left" if pending and seconds is not None else ""
        if self._task is None:
            self._task = self._progress.add_task(text, total=None, left=left)
        finished = self._remaining.finished
        total = finished + pending
        self._progress.update(self._task, description=text, left=left, completed=finished, total=total or None)


def _numbers(result: TrialResult) -> str:
    """Return the result of a trial as short text."""
    if result.probe:
        return readings(result.probe)
    if is_emulated(result.phases):
        return "finished (functional only: emulated processors)"
    unit = counted([result])
    if unit == counted_by("command"):
        return f"took {format_seconds(max(phase.seconds for phase in result.phases))}"
    return f"{sum(phase.throughput for phase in result.phases) / len(result.phases):,.0f} {unit.unit}"
