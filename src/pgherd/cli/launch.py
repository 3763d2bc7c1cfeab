"""From options to a finished run: what all studies' verbs share."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from pgherd import __version__
from pgherd.cli import dry_run, metrics_options
from pgherd.cli.output import answer_console, confirm_changes, print_document, progress_console, run_named
from pgherd.cli.progress import TerminalProgress
from pgherd.distributed.backend import complete, standing
from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.host.journal import clean
from pgherd.model.base import Model
from pgherd.model.errors import RunDirectoryError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.run import RunRecord, Surroundings
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.external import redact
from pgherd.prepare.prepared_study import input_digests, with_inputs
from pgherd.prepare.scenarios import request, write_scenario
from pgherd.runner.deploy.pages import try_out
from pgherd.runner.live_writer import open_live_writer
from pgherd.runner.loop import execute
from pgherd.store.run_directory import RunDirectory
from pgherd.study.registry import study_of


def launch(
    study: str,
    options: dict[str, Any],
    *,
    runs: Path,
    dry_run: bool = False,
    scenario: Path | None = None,
    report: bool = True,
    as_json: bool = False,
    title: str = "",
) -> int:
    """Run a study from what its user said; returns the exit code.

    Raises:
        PgherdError: bad options, something this host cannot do, or a run that failed.
    """
    asked = request(study, options)
    if scenario is not None:
        write_scenario(scenario, study, options)
        if as_json:
            print_document({"schema": "pgherd/scenario-written/1", "path": str(scenario)})
        else:
            answer_console().print(f"Wrote {scenario}; 'pgherd run {scenario}' runs it.", markup=False)
        return 0
    node = LocalNode()
    with interruption.ended_by_signals():
        if dry_run:
            return _plan(study, asked, node, as_json=as_json)
        with metrics_options.serving(), _resumable() as begun:
            with TerminalProgress(progress_console()) as watcher:
                directory, record = _run(study, asked, runs, node, watcher, title, begun)
            return _conclude(directory, record, report=report, as_json=as_json)


def _plan(study: str, asked: Model, node: LocalNode, *, as_json: bool) -> int:
    prepared, _ = complete(node, study, asked, dry=True)
    proposal = study_of(study).propose(prepared.options, [])
    if as_json:
        print_document(dry_run.document(prepared, proposal))
    else:
        dry_run.show(answer_console(), prepared, proposal)
    return 0


@contextmanager
def _resumable() -> Iterator[list[RunDirectory]]:
    """Whoever interrupts is told what is kept of the run that is entered here, and how to go on: with its trials, or with its report."""
    begun: list[RunDirectory] = []
    try:
        yield begun
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or interruption.asked():
            for directory in filter(RunDirectory.begun, begun):
                done = len(directory.results())
                kept = "1 finished trial is" if done == 1 else f"{done} finished trials are"
                said = f"Interrupted; {kept} kept. Go on with: pgherd resume {shlex.quote(run_named(directory))}"
                progress_console().print(said, markup=False, soft_wrap=True)  # a command to be copied
        raise


def _run(
    study: str, asked: Model, runs: Path, node: LocalNode, watcher: TerminalProgress, title: str, begun: list[RunDirectory]
) -> tuple[RunDirectory, RunRecord]:
    """Prepare and execute a new run; one that ended before its study began leaves no directory."""
    if title:
        watcher.note(title)
    RunDirectory.check_root(runs)
    watcher.setup("looking at this host")
    prepared, facts = complete(node, study, asked)
    for choice in prepared.choices:
        watcher.note(choice)
    confirm_changes(prepared.confirm, watcher.note, watcher.paused)
    _confirm_formats(prepared.typed, watcher)
    if prepared.surroundings.cluster is None:
        try_out(node, prepared.huge_pages)
    directory = RunDirectory.create(runs, study)
    begun.append(directory)
    try:
        kept = with_inputs(node, prepared.options, directory.path / "inputs")
        record = RunRecord(
            run=directory.name,
            study=study,
            options=kept.model_dump(mode="json"),
            surroundings=prepared.surroundings,
            thresholds=prepared.thresholds,
            command=["pgherd", *map(redact, sys.argv[1:])],
            started=time.time(),
            pgherd=__version__,
            hosts=facts,
            postgres=_installations(study, kept, node) or prepared.postgres,
            tools=prepared.tool_versions(),
            inputs=input_digests(directory.path / "inputs"),
            choices=list(prepared.choices),
        )
        directory.save(record)
        return directory, _execute(node, directory, record, kept, prepared.surroundings, watcher)
    except BaseException:
        directory.discard_unless_begun()
        raise


def _confirm_formats(devices: Sequence[str], watcher: TerminalProgress) -> None:
    """Have the user type the name of each device that will be formatted; ``--yes`` is not enough for that.

    Raises:
        UsageError: there is no terminal on which to ask, or another word was typed.
    """
    if devices and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{', '.join(devices)} would be formatted, which is confirmed by typing its name; there is no terminal to ask on")
    for device in devices:
        watcher.note(f"{device} will be formatted: everything on it is lost.")
        with watcher.paused():
            said = click.prompt(f"Type {device} to go on", default="", show_default=False, err=True)
        if said.strip() != device:
            raise UsageError(f"'{said.strip()}' is not {device}: nothing was formatted")


def _installations(study: str, options: Model, node: LocalNode) -> dict[str, str]:
    """Bin directory → version of every server that the study deploys, and of the drivers of those that are there already: its
    first proposal names them all."""
    servers = [server for trial in study_of(study).propose(options, []).trials for _, _, server in trial.deployment.servers()]
    own = {server.bin: server.version for server in servers if server.dsn is None}
    return {server.bin: installations.choose(node, server.bin).version for server in servers if server.bin not in own} | own


def resume(directory: RunDirectory, *, report: bool, as_json: bool) -> int:
    """Go on with a run, after the trials that are finished; returns the exit code.

    Raises:
        PgherdError: the run is alive, cannot be read, or what it needs is not on this host any more.
    """
    record = directory.record()
    surroundings = record.surroundings
    if surroundings is None:
        raise RunDirectoryError(f"run {directory.name} does not say what it needs of its host, so it cannot be resumed")
    with interruption.ended_by_signals(), metrics_options.serving(), _resumable() as begun:
        begun.append(directory)
        node = LocalNode()
        with TerminalProgress(progress_console()) as watcher:
            if record.state != "finished":
                watcher.note(f"Resuming {directory.name} after {len(directory.results())} finished trials.")
            for said in clean(node, paths.state_dir()):  # what it made may still stand, if it was killed, be it after its last trial
                watcher.note(said)
            if record.state != "finished":
                options = study_of(record.study).options.model_validate(record.options)
                if surroundings.cluster is None:
                    record = resumed_on(record, gather(node), len(directory.results()))
                record = _execute(node, directory, record, options, surroundings, watcher)
        return _conclude(directory, record, report=report, as_json=as_json)


def resumed_on(record: RunRecord, now: HostFacts, done: int) -> RunRecord:
    """The record of a run on one host that goes on after ``done`` trials: it says where the host is not what it was."""
    from pgherd.report import run_differences

    later = record.model_copy(update={"hosts": dict.fromkeys(record.hosts, now)})
    if not done:
        return later  # nothing was measured on the host as it was
    differing = run_differences.differences([("begun", record), ("resumed", later)])["host facts"].rows
    if not differing:
        return record
    changes = "; ".join(f"{what.text} was {before.text}, now {after.text}" for what, before, after in differing)
    ending = f" the run was resumed on a host that is not what it was ({changes}): its numbers mix the two"
    if record.resumed and record.resumed[-1].endswith(ending):
        return record  # on that same other host once more
    return record.model_copy(update={"resumed": [*record.resumed, f"After {done} trial{'' if done == 1 else 's'}{ending}"]})


def _execute(
    node: LocalNode, directory: RunDirectory, record: RunRecord, options: Model, surroundings: Surroundings, watcher: TerminalProgress
) -> RunRecord:
    with (
        directory.locked(),
        open_live_writer(directory.path, watcher) as told,
        standing(node, directory.name, record, surroundings, told) as (bench, study),
    ):
        metrics_options.show(directory.path, record)
        return execute(directory, record, study, options, bench, record.thresholds, told)


def _conclude(directory: RunDirectory, record: RunRecord, *, report: bool, as_json: bool) -> int:
    """Make the report and print the answer; exit code 1 for grade C, or no answer at all."""
    from pgherd.report import data_files, terminal, write_report

    results = directory.results()
    if report:
        write_report.build(directory.path, record, results)
    if as_json:
        print_document(data_files.document(record, results))
    else:
        terminal.show(answer_console(), record, results, directory.path)
    return 1 if record.analysis is None or record.analysis.grade == "C" else 0
