"""Run or resume a study from the command line. All study commands share this code."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from pgherd import __version__
from pgherd.cli import dry_run, metrics_options
from pgherd.cli.output import answer_console, confirm_changes, print_document, progress_console, run_named
from pgherd.cli.progress import TerminalProgress
from pgherd.distributed.backend import complete, open_backend
from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.host.journal import clean
from pgherd.model.base import Model
from pgherd.model.errors import RunDirectoryError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment, RunRecord
from pgherd.model.text import clean as clean_text
from pgherd.node import interruption, secrets
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.prepare import requests
from pgherd.prepare.prepared_study import keep_inputs
from pgherd.runner.deploy.huge_pages import probe_huge_pages
from pgherd.runner.live_writer import open_live_writer
from pgherd.runner.loop import execute
from pgherd.store.run_directory import RunDirectory
from pgherd.study.study import studies, study_of


def run_study(
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
    """Run a study with the user's options, and return the exit code.

    Raises:
        PgherdError: an option is wrong, this host cannot run the study, or the run failed.
    """
    request = requests.request(study, options)
    if variables := getattr(request, "env", ()):  # from here on, options have the names of variables only
        options = options | {"env": secrets.take_variables(variables)}
        request = requests.request(study, options)
    if scenario is not None:
        requests.write_scenario(scenario, study, options)
        if as_json:
            print_document({"schema": "pgherd/scenario-written/2", "path": str(scenario)})
        else:
            answer_console().print(f"Wrote {scenario}; 'pgherd run {scenario}' runs it.", markup=False)
        return 0
    node = LocalNode()
    with interruption.ended_by_signals():
        if dry_run:
            return _plan(study, request, node, as_json=as_json)
        with metrics_options.serving(), _resumable() as begun:
            with TerminalProgress(progress_console()) as watcher:
                directory, record = _run(study, request, runs, node, watcher, title, begun)
            return _conclude(directory, record, report=report, as_json=as_json)


def _plan(study: str, request: Model, node: LocalNode, *, as_json: bool) -> int:
    prepared, _ = complete(node, study, request, dry=True)
    proposal = study_of(study).propose(prepared.options, [])
    if as_json:
        print_document(dry_run.document(prepared, proposal))
    else:
        dry_run.show(answer_console(), prepared, proposal)
    return 0


@contextmanager
def _resumable() -> Iterator[list[RunDirectory]]:
    """Print the number of kept trials and the command to resume if the block is interrupted.

    The caller appends its run to the yielded list once it is known.
    """
    begun: list[RunDirectory] = []
    try:
        yield begun
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or interruption.requested():
            for directory in filter(RunDirectory.begun, begun):
                done = len(directory.results())
                kept = "1 finished trial is" if done == 1 else f"{done} finished trials are"
                message = f"Interrupted; {kept} kept. Resume with: pgherd resume {shlex.quote(run_named(directory))}"
                progress_console().print(message, markup=False, soft_wrap=True)  # unwrapped, so that the command can be copied
        raise


def _run(
    study: str, request: Model, runs: Path, node: LocalNode, watcher: TerminalProgress, title: str, begun: list[RunDirectory]
) -> tuple[RunDirectory, RunRecord]:
    """Prepare and execute a new run. Its directory is removed if it ends before its first trial."""
    if title:
        watcher.note(title)
    RunDirectory.check_root(runs)
    watcher.setup("checking this host")
    prepared, facts = complete(node, study, request)
    for choice in prepared.defaults_chosen:
        watcher.note(choice)
    confirm_changes(prepared.confirm, watcher.note, watcher.paused)
    _confirm_formats(prepared.typed, watcher)
    if prepared.environment.cluster is None:
        probe_huge_pages(node, prepared.huge_pages)
    directory = RunDirectory.create(runs, study)
    begun.append(directory)
    try:
        kept, digests = keep_inputs(node, prepared.options, directory.path / "inputs")
        record = RunRecord(
            run=directory.name,
            study=study,
            options=kept.model_dump(mode="json"),
            environment=prepared.environment,
            thresholds=prepared.thresholds,
            command=["pgherd", *secrets.redact_arguments(sys.argv[1:])],
            started=time.time(),
            pgherd=__version__,
            hosts=facts,
            postgres=_installations(study, kept, node) or prepared.postgres,
            tools=prepared.tool_versions(),
            inputs=digests,
            defaults_chosen=list(prepared.defaults_chosen),
        )
        directory.save(record)
        return directory, _execute(node, directory, record, kept, prepared.environment, watcher)
    except BaseException:
        directory.discard_unless_begun()
        raise


def _confirm_formats(devices: Sequence[str], watcher: TerminalProgress) -> None:
    """Require that the user types the name of each device that will be formatted. ``--yes`` does not replace that.

    Raises:
        UsageError: there is no terminal to type on, or the typed name differs.
    """
    if devices and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"formatting {', '.join(devices)} is confirmed by typing its name, but there is no terminal; use one")
    for device in devices:
        watcher.note(f"{device} will be formatted: all data on it is lost.")
        with watcher.paused():
            typed = click.prompt(clean_text(f"Type {device} to continue"), default="", show_default=False, err=True)
        if typed.strip() != device:
            raise UsageError(f"'{typed.strip()}' is not {device}: nothing was formatted; start again and type the device's name")


def _installations(study: str, options: Model, node: LocalNode) -> dict[str, str]:
    """Return bin directory → version, for every server that the study deploys and for the clients of external servers.

    The first proposal of a study names all of them.
    """
    servers = [server for trial in study_of(study).propose(options, []).trials for _, _, server in trial.deployment.servers()]
    deployed = {server.bin: server.version for server in servers if server.dsn is None}
    return {server.bin: installations.choose(node, server.bin).version for server in servers if server.bin not in deployed} | deployed


def resume(directory: RunDirectory, *, report: bool, as_json: bool) -> int:
    """Run the remaining trials of a run, and return the exit code.

    Raises:
        PgherdError: the run is being executed, its record is unreadable, or this host no longer has what it requires.
    """
    record = directory.record()
    environment = record.environment
    if environment is None:
        raise RunDirectoryError(f"run {directory.name} cannot be resumed: its run.json has no 'environment'; start a new run")
    with interruption.ended_by_signals(), metrics_options.serving(), _resumable() as begun:
        begun.append(directory)
        node = LocalNode()
        with TerminalProgress(progress_console()) as watcher:
            if record.state != "finished":
                watcher.note(f"Resuming {directory.name} after {len(directory.results())} finished trials.")
            for line in clean(node, paths.state_dir()):  # a killed run leaves host changes, even after its last trial
                watcher.note(line)
            if record.state != "finished":
                options = _recorded_options(directory, record)
                secrets.take_variables(tuple(getattr(options, "env", ())))
                if environment.cluster is None:
                    record = resumed_on(record, gather(node), len(directory.results()))
                record = _execute(node, directory, record, options, environment, watcher)
        return _conclude(directory, record, report=report, as_json=as_json)


def _recorded_options(directory: RunDirectory, record: RunRecord) -> Model:
    """Return the options in a record. Raises RunDirectoryError if this version does not have the study or its options."""
    if record.study not in studies():
        raise RunDirectoryError(f"run {directory.name} cannot be resumed: there is no study '{record.study}'")
    try:
        options: Model = study_of(record.study).options.model_validate(record.options)
    except ValidationError as error:
        raise RunDirectoryError(f"run {directory.name} cannot be resumed: option {requests.first_fault(error)}") from None
    return options


def resumed_on(record: RunRecord, now: HostFacts, done: int) -> RunRecord:
    """Return the record of a run on one host, resumed after ``done`` trials. If the host has changed, it states the changes."""
    from pgherd.report import run_differences

    later = record.model_copy(update={"hosts": dict.fromkeys(record.hosts, now)})
    if not done:
        return later  # no result is from the host before the change
    differing = run_differences.differences([("begun", record), ("resumed", later)])["host facts"].rows
    if not differing:
        return record
    changes = "; ".join(f"{what.text} was {before.text}, now {after.text}" for what, before, after in differing)
    ending = f", the run was resumed on a changed host ({changes}): results before and after may differ"
    if record.resumed_on_changed_host and record.resumed_on_changed_host[-1].endswith(ending):
        return record  # resumed again on the same changed host
    return record.model_copy(
        update={"resumed_on_changed_host": [*record.resumed_on_changed_host, f"After {done} trial{'' if done == 1 else 's'}{ending}"]}
    )


def _execute(
    node: LocalNode, directory: RunDirectory, record: RunRecord, options: Model, environment: RunEnvironment, watcher: TerminalProgress
) -> RunRecord:
    with (
        directory.locked(),
        open_live_writer(directory.path, watcher) as writer,
        open_backend(node, directory.name, record, environment, writer) as (backend, study),
    ):
        metrics_options.show(directory.path, record)
        return execute(directory, record, study, options, backend, record.thresholds, writer)


def _conclude(directory: RunDirectory, record: RunRecord, *, report: bool, as_json: bool) -> int:
    """Write the report and print the answer. Return exit code 1 for grade C or a missing answer, and 0 otherwise."""
    from pgherd.report import data_files, terminal, write_report

    results = directory.results()
    if report:
        write_report.build(directory.path, record, results)
    if as_json:
        print_document(data_files.document(record, results))
    else:
        terminal.show(answer_console(), record, results, directory.path)
    return 1 if record.analysis is None or record.analysis.grade == "C" else 0
