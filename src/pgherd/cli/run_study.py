"""Run or resume a study from the command line, with live progress. All study commands share this code.

Progress on stderr: finished trials, the present one, and the remaining time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import click
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from pgherd import __version__
from pgherd.cli import dry_run, metrics_options
from pgherd.cli.output import answer_console, confirm_changes, print_document, progress_console
from pgherd.cli.show import point_words, readings
from pgherd.distributed.backend import complete, open_backend
from pgherd.distributed.cluster_backend import ClusterBackend
from pgherd.host import paths, reservation
from pgherd.host.facts import gather
from pgherd.host.journal import clean
from pgherd.model.base import Model
from pgherd.model.errors import RunDirectoryError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import TrialResult, counted, counted_by
from pgherd.model.run import RunEnvironment, RunRecord
from pgherd.model.text import clean as clean_text
from pgherd.model.trial import Trial
from pgherd.model.units import format_seconds
from pgherd.node import interruption, secrets
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.prepare import hosts, requests
from pgherd.prepare.prepared_study import keep_inputs
from pgherd.runner.deploy.huge_pages import probe_huge_pages
from pgherd.runner.loop import execute
from pgherd.runner.progress import RunObserver, TimeEstimate, open_live_writer
from pgherd.store.run_directory import RunDirectory
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.guests import is_emulated
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
                message = f"Interrupted; {kept} kept. Resume with: pgherd resume {directory.argument}"
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
    _require_free_host(node, request)
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
            postgres=_installations(study, kept, node, prepared.environment) or prepared.postgres,
            tools=prepared.tool_versions(),
            inputs=digests,
            defaults_chosen=list(prepared.defaults_chosen),
        )
        directory.save(record)
        return directory, _execute(node, directory, record, kept, prepared.environment, watcher)
    except BaseException:
        directory.discard_unless_begun()
        raise


def _require_free_host(node: LocalNode, request: Model) -> None:
    """Require that no other run excludes this one, before its preparation loads databases for minutes and disturbs the other run.

    A preset or a scenario may limit the cores, and the preparation may need less memory. The reservation of the run considers that.

    Raises:
        CapabilityError: a run has reserved the complete host, or this request is for all cores and a run has reserved some.
    """
    if not isinstance(request, DatabaseRequest) or request.cluster is not None or request.dsn or request.servers is not None:
        return
    others = reservation.live(paths.state_dir())
    limited = request.host_cores or getattr(request, "preset", None) or getattr(request, "scenarios", ())
    if others and (not limited or any(other.cores is None for other in others)):
        facts = gather(node)
        _, memory = hosts.one_host(request.host_cores, request.host_memory, facts)
        reservation.require_free(request.host_cores, memory, facts, others)


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


def _installations(study: str, options: Model, node: LocalNode, environment: RunEnvironment) -> dict[str, str]:
    """Return bin directory → build, for every server that the study deploys and for the clients of external servers.

    The first proposal of a study names all of them. On a cluster it is the version, because the builds of the hosts may differ.
    """
    servers = [server for trial in study_of(study).propose(options, []).trials for _, _, server in trial.deployment.servers()]
    versions = {server.bin: server.version for server in servers}
    return versions if environment.cluster is not None else {bin_: installations.choose(node, bin_).build for bin_ in versions}


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
                    record = resumed_on(record, dict.fromkeys(record.hosts, gather(node)), len(directory.results()))
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


def resumed_on(record: RunRecord, now: Mapping[str, HostFacts], done: int) -> RunRecord:
    """Return the record of a run, resumed after ``done`` trials. If a host or the version of pgherd has changed, it states the changes."""
    from pgherd.report import run_differences

    later = record.model_copy(update={"hosts": dict(now), "pgherd": __version__})
    if not done:
        return later  # no result is from before the change
    tables = run_differences.differences([("begun", record), ("resumed", later)])
    differing = tables["host facts"].rows + tables["versions"].rows
    if not differing:
        return record
    changes = "; ".join(f"{what.text} was {before.text}, now {after.text}" for what, before, after in differing)
    ending = f", the run was resumed after changes ({changes}): results before and after may differ"
    if any(sentence.endswith(ending) for sentence in record.resumed_on_changed_host):
        return record  # resumed again after the same changes
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
        if isinstance(backend, ClusterBackend):
            record = resumed_on(record, backend.facts, len(directory.results()))
        metrics_options.show(directory.path, record)
        return execute(directory, record, study, options, backend, record.thresholds, writer)


def _conclude(directory: RunDirectory, record: RunRecord, *, report: bool, as_json: bool) -> int:
    """Write the report and print the answer. Return exit code 1 for grade C or a missing answer, and 0 otherwise."""
    from pgherd.report import data_files, terminal, write_report
    from pgherd.study.analyse_run import refreshed

    results = directory.results()
    record = refreshed(record, results)
    if report:
        write_report.build(directory.path, record, results)
    if as_json:
        print_document(data_files.document(record, results))
    else:
        terminal.show(answer_console(), record, results, directory.path)
    return 1 if record.analysis is None or record.analysis.grade == "C" else 0


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
            with self._best_effort():
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
                self.note(text if left is None else f"{text}, about {format_seconds(left)}")

    def trial(self, trial: Trial, number: int) -> None:
        self._started = time.monotonic()
        point = point_words(trial)
        self._describe(f"trial {number}: {point}" + ("" if trial.reason == "planned" else f" ({trial.reason})"))

    def finished(self, result: TrialResult) -> None:
        self._remaining.finish(time.monotonic() - self._started, result.trial.seconds())
        point = point_words(result.trial)
        failed = [check.name for check in result.checks if check.taints]
        outcome = f"failed: {result.error}" if result.error else _numbers(result)
        taint = f", tainted: {', '.join(failed)}" if failed else ""
        self.note(f"  {result.id}  {point:<16} {outcome}{taint}")
        self._describe(f"{self._remaining.trials} trials left")

    def note(self, text: str) -> None:
        with self._best_effort():
            self._console.print(text, highlight=False, markup=False)

    @contextlib.contextmanager
    def _best_effort(self) -> Iterator[None]:
        """Print nothing more after an error, such as a dead terminal or a full disk, because it must not end a measurement."""
        try:
            yield
        except OSError:
            self._console.quiet = True

    def _describe(self, text: str) -> None:
        if not self._live:
            return
        pending = self._remaining.trials
        seconds = self._remaining.seconds()
        left = f"about {format_seconds(seconds)} left" if pending and seconds is not None else ""
        finished = self._remaining.finished
        total = finished + pending
        with self._best_effort():
            if self._task is None:
                self._task = self._progress.add_task(text, total=None, left=left)
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
