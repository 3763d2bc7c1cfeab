"""``pgherd watch``: a running study, from another terminal."""

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

_PERIOD = 1.0
"""Seconds between two looks: samples come once a second, and looking is work on the host that is being measured."""
_LINES_EVERY = 10.0
"""Where no picture can be drawn, a line on what is measured comes so often, in seconds."""


@click.command("watch")
@click.argument("run", required=False)
@runs_option
@json_option
def command(run: str | None, runs: Path, as_json: bool) -> int:
    """Watch a running study from another terminal: progress, throughput, CPU and memory by container, verdicts as they fall,
    and the answer once there is one. Nothing is changed, and leaving it (Ctrl-C) leaves the run alone. RUN is a name, a part of
    one, a path, or 'last'; else it is the newest that is running.

    \b
    pgherd watch
    pgherd watch last --json           one document on how it stands now
    """
    from pgherd.report.live_status import LiveRun

    directory = _found(run, runs)
    live = LiveRun(directory)
    present = live.look()
    if as_json:
        print_document({"schema": "pgherd/watch/1", **present.model_dump(mode="json")})
        return 0
    console = answer_console()
    if present.state == "running":
        present = _drawn(console, live, present) if console.is_terminal else _lines(console, live, present)
    return _conclude(console, directory, present)


def _found(run: str | None, runs: Path) -> RunDirectory:
    from pgherd.model.errors import RunDirectoryError
    from pgherd.report.live_status import newest_running
    from pgherd.store.run_directory import RunDirectory

    if run is not None:
        return RunDirectory.find(run, runs)
    found = newest_running(runs)
    if found is None:
        there = RunDirectory.all(runs)
        said = f"the newest is {there[-1].name}: 'pgherd watch {there[-1].name}' shows how it ended" if there else "it holds none at all"
        raise RunDirectoryError(f"no run in {runs} is running; {said} (--runs DIR names another place)")
    return found


def _drawn(console: Console, live: LiveRun, present: LiveStatus) -> LiveStatus:
    from rich.live import Live

    from pgherd.report.watch_view import picture

    with Live(console=console, auto_refresh=False, transient=True, screen=False) as screen:
        while present.state == "running":
            screen.update(picture(present, console.height), refresh=True)
            time.sleep(_PERIOD)
            present = live.look()
    return present


def _lines(console: Console, live: LiveRun, present: LiveStatus) -> LiveStatus:
    from pgherd.report.watch_view import changes, measured_text

    before: LiveStatus | None = None
    said = time.monotonic()
    while True:
        for line in changes(before, present):
            console.print(line, markup=False, soft_wrap=True)
            said = time.monotonic()
        if present.state != "running":
            return present
        if time.monotonic() - said >= _LINES_EVERY and (words := measured_text(present)):
            console.print(words, markup=False, soft_wrap=True)
            said = time.monotonic()
        before = present
        time.sleep(_PERIOD)
        present = live.look()


def _conclude(console: Console, directory: RunDirectory, present: LiveStatus) -> int:
    """How it ended: the answer, or why there is none and how to go on; exit code 1 for grade C, or no answer."""
    from pgherd.report import terminal
    from pgherd.report.watch_view import heading

    if present.state == "killed":
        kept = "1 finished trial is" if present.trials_done == 1 else f"{present.trials_done} finished trials are"
        console.print(f"{present.run} does not run any more: its process was killed. {kept.capitalize()} kept.", markup=False)
        console.print(f"Go on with it: {present.resume}", markup=False)
        return 1
    console.print(heading(present), markup=False)
    terminal.show(console, directory.record(), directory.results(), directory.path)
    return 0 if present.state == "finished" and present.grade in ("A", "B") else 1
