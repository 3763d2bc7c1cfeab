"""``pgherd watch``: follow a running study from another terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option

if TYPE_CHECKING:
    from rich.console import Console

    from pgherd.report.live_status import LiveRun, LiveStatus
    from pgherd.store.run_directory import RunDirectory

_POLL_INTERVAL_S = 1.0
"""Polling interval in seconds. Samples arrive once a second, and polling uses CPU of the measured host."""
_LINE_INTERVAL_S = 10.0
"""Interval in seconds of lines with measurements, if the output is no terminal."""


@click.command("watch")
@click.argument("run", required=False)
@runs_option
@json_option
def command(run: str | None, runs: Path, as_json: bool) -> int:
    """Follow a running study: progress, throughput, CPU and memory by container, checks, and the answer at the end. Ctrl-C
    ends the display and not the run. RUN is a name, a part of one, a path, or 'last'.  [default: newest running]

    \b
    pgherd watch
    pgherd watch last --json           one document with the present state
    """
    from pgherd.report.live_status import LiveRun

    directory = _directory(run, runs)
    live = LiveRun(directory)
    present = live.look()
    if as_json:
        print_document({"schema": "pgherd/watch/2", **present.model_dump(mode="json")})
        return 0
    console = answer_console()
    if present.state == "running":
        present = _draw(console, live, present) if console.is_terminal else _print_lines(console, live, present)
    return _conclude(console, directory, present)


def _directory(run: str | None, runs: Path) -> RunDirectory:
    from pgherd.model.errors import RunDirectoryError
    from pgherd.report.live_status import newest_running
    from pgherd.store.run_directory import RunDirectory

    if run is not None:
        return RunDirectory.find(run, runs)
    newest = newest_running(runs)
    if newest is None:
        ended = RunDirectory.all(runs)
        hint = f"'pgherd watch {ended[-1].argument}' shows the newest one" if ended else "there are no runs"
        raise RunDirectoryError(f"no run in {runs} is running; {hint} (--runs-dir sets another directory)")
    return newest


def _draw(console: Console, live: LiveRun, present: LiveStatus) -> LiveStatus:
    from rich.live import Live

    from pgherd.report.watch_view import picture

    with Live(console=console, auto_refresh=False, transient=True, screen=False) as screen:
        while present.state == "running":
            screen.update(picture(present, console.height), refresh=True)
            time.sleep(_POLL_INTERVAL_S)
            present = live.look()
    return present


def _print_lines(console: Console, live: LiveRun, present: LiveStatus) -> LiveStatus:
    from pgherd.report.watch_view import changes, measured_text

    before: LiveStatus | None = None
    printed = time.monotonic()
    while True:
        for line in changes(before, present):
            console.print(line, markup=False, soft_wrap=True)
            printed = time.monotonic()
        if present.state != "running":
            return present
        if time.monotonic() - printed >= _LINE_INTERVAL_S and (text := measured_text(present)):
            console.print(text, markup=False, soft_wrap=True)
            printed = time.monotonic()
        before = present
        time.sleep(_POLL_INTERVAL_S)
        present = live.look()


def _conclude(console: Console, directory: RunDirectory, present: LiveStatus) -> int:
    """Print the answer, or why there is none and how to resume. Return 1 for grade C or no answer."""
    from pgherd.report import terminal
    from pgherd.report.watch_view import heading
    from pgherd.study.analyse_run import refreshed

    if present.state == "killed":
        finished = f"{present.trials_done} finished trial{'' if present.trials_done == 1 else 's'}"
        console.print(f"{present.run} was killed. It has {finished}.", markup=False)
        console.print(f"Resume it with: {present.resume}", markup=False)
        return 1
    console.print(heading(present), markup=False)
    results = directory.results()
    terminal.show(console, refreshed(directory.record(), results), results, directory.path)
    return 0 if present.state == "finished" and present.grade in ("A", "B") else 1
