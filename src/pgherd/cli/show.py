"""``pgherd list`` and ``pgherd show``: list runs, show one or one of its trials, or print a script that repeats a trial."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console, runs_option
from pgherd.model.errors import UsageError
from pgherd.model.result import MIXED, PhaseResult, TargetResult, TrialResult, WorkUnit, counted_by
from pgherd.model.text import clean
from pgherd.model.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from pgherd.model.trial import Trial
    from pgherd.store.run_directory import RunDirectory


@click.command("list")
@runs_option
@json_option
def list_command(runs: Path, as_json: bool) -> None:
    """List runs, oldest first."""
    from pgherd.model.errors import RunDirectoryError
    from pgherd.store.run_directory import RunDirectory

    rows: list[dict[str, Any]] = []
    warnings = []
    for directory in RunDirectory.all(runs):
        try:
            record = directory.record()
        except RunDirectoryError as error:
            warnings.append(str(error))
            continue
        state = "killed" if record.state == "running" and not directory.alive() else record.state
        hosts = ", ".join(dict.fromkeys(facts.hostname for facts in record.hosts.values()))
        rows.append(
            {
                "run": directory.name,
                "study": record.study,
                "state": state,
                "grade": record.analysis.grade if record.analysis else None,
                "trials": len(list((directory.path / "trials").glob("[0-9]*[0-9]/trial.json"))),
                "host": hosts or None,
                "answer": record.analysis.answer if record.analysis else record.error,
                "path": str(directory.path),
            }
        )
    if as_json:
        print_document({"schema": "pgherd/runs/2", "runs": rows, "warnings": warnings})
        return
    for warning in warnings:
        progress_console().print(f"warning: {warning}", markup=False)
    console = answer_console()
    if not rows:
        console.print(
            f"No runs in {runs}. Start one with 'pgherd density', or set another directory with --runs-dir or PGHERD_RUNS.", markup=False
        )
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "grade", "trials", "answer"):
        table.add_column(name, justify="right" if name == "trials" else "left", no_wrap=name != "answer")
    for row in rows:
        table.add_row(row["run"], row["state"], row["grade"] or "–", str(row["trials"]), row["answer"] or "")
    console.print(table)
    unfinished = [row["run"] for row in rows if row["state"] in ("interrupted", "failed", "killed")]
    if unfinished:
        console.print(f"\nResume an unfinished run: pgherd resume {RunDirectory(runs / unfinished[-1]).argument}", markup=False)


MAX_READINGS = 12
"""Maximum number of a probe's readings to print. All are in trial.json."""
MAX_PHASES = 9
"""Maximum number of phases to print in full. More, such as the windows of a soak, get one line each."""

_RESULTS = {"pass": "pass", "fail": "FAIL", "unknown": "unknown"}


@click.command("show")
@click.argument("run")
@click.argument("trial", required=False)
@click.option("--repro-script", is_flag=True, help="Print a shell script that repeats the trial without pgherd.")
@runs_option
@json_option
def command(run: str, trial: str | None, repro_script: bool, runs: Path, as_json: bool) -> int:
    """Show a run or one of its trials. RUN is a name, a part of one, a path, or 'last'. TRIAL is a number.

    \b
    pgherd show last                   the answer
    pgherd show last 7                 trial 7: measurements, checks, raw files
    pgherd show last 7 --repro-script  a script that repeats it without pgherd
    """
    from pgherd.report import data_files, terminal
    from pgherd.store.run_directory import RunDirectory
    from pgherd.study.analyse_run import refreshed

    directory = RunDirectory.find(run, runs)
    results = directory.results()
    record = refreshed(directory.standing(), results)
    if trial is None:
        if repro_script:
            raise UsageError(f"--repro-script requires a trial; run {directory.name} has {_trial_range(len(results))}")
        if as_json:
            print_document(data_files.document(record, results))
        else:
            terminal.show(answer_console(), record, results, directory.path)
        return 0
    result = next((result for result in results if result.id == trial.zfill(4)), None)
    if result is None:
        raise UsageError(f"run {directory.name} has no trial '{trial}'; it has {', '.join(result.id for result in results)}")
    path = directory.path / "trials" / result.id
    if repro_script and as_json:
        raise UsageError("--repro-script prints a script and --json a document; give one of them")
    if repro_script:
        from pgherd.report.repro_script import script

        text = script(result, record, directory.path / "inputs")
        if sys.stdout.isatty() and clean(text) != text.replace("\t", " "):
            raise UsageError(
                "the script contains control characters, which a terminal would interpret; write it to a file with '> repeat.sh'"
            )
        click.echo(text, nl=False, color=True)  # without it, click removes escape sequences within quotes
    elif as_json:
        print_document({"schema": "pgherd/trial/2", "run": directory.name, "trial": result, "path": str(path)})
    else:
        show_trial(answer_console(), result, path, directory)
    return 0


def _trial_range(count: int) -> str:
    return "no finished trial" if count == 0 else "trial 1" if count == 1 else f"trials 1 to {count}"


def point_words(trial: Trial) -> str:
    """Return a point as text: ``1 database``, ``8 databases``, ``scale 10``, or the name of a variant."""
    return ", ".join(_coordinate(name, value) for name, value in trial.point.items())


def _coordinate(name: str, value: int | float | str) -> str:
    if name == "variant":
        return str(value)
    return f"{value} {name.removesuffix('s') if value == 1 else name}" if name.endswith("s") else f"{name} {value}"


def show_trial(console: Console, result: TrialResult, path: Path, directory: RunDirectory) -> None:
    """Print the targets, the checks and the path of the raw files."""
    from rich.table import Table

    from pgherd.study.guests import is_emulated

    trial = result.trial
    console.print(
        f"Trial {result.id} of {directory.name}: {point_words(trial)}, repeat {trial.repeat} ({trial.reason}); servers {trial.state}",
        markup=False,
    )
    if result.transition:
        console.print(f"Servers: {result.transition}.", markup=False)
    if result.error:
        console.print(f"Not finished: {result.error}", markup=False)
    if result.probe:
        console.print(f"Probe '{trial.probe}': {readings(result.probe)}.", markup=False)
    if len(result.phases) > MAX_PHASES and not is_emulated(result.phases):
        _print_phase_table(console, result.phases)
    else:
        for phase in result.phases:
            _print_phase(console, phase)
    if result.checks:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("check", "result", "observed", "expected"):
            table.add_column(name, overflow="fold")
        for check in result.checks:
            mark = _RESULTS[check.result] + (" (warning only)" if check.severity == "warn" and check.result == "fail" else "")
            table.add_row(check.name, mark, check.observed + (f": {check.reason}" if check.reason else ""), check.expected)
        console.print(table)
    console.print(f"Raw files: {path}", markup=False)
    if not result.error:
        console.print(
            f"Reproduce: pgherd show {directory.argument} {int(result.id)} --repro-script > repeat.sh; sh repeat.sh", markup=False
        )


def readings(probe: Mapping[str, float]) -> str:
    """Return a probe's readings as text: ``database 157 MB, tables 135 MB``."""
    if len(probe) > MAX_READINGS:
        return f"{len(probe)} readings"
    parts = []
    for name, value in probe.items():
        noun, _, unit = name.rpartition("_")
        parts.append(f"{noun.replace('_', ' ')} {format_bytes(value)}" if unit == "bytes" else f"{name.replace('_', ' ')} {value:,.6g}")
    return ", ".join(parts)


def _print_phase_table(console: Console, phases: Sequence[PhaseResult]) -> None:
    from rich.table import Table

    unit = _unit_of(phases)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    for name in ("seconds", "overlap", f"total {unit.unit}", "failed"):
        table.add_column(name, justify="right")
    for phase in phases:
        failed = sum(target.failed for target in phase.targets)
        table.add_row(phase.phase, f"{phase.seconds:.2f}", f"{phase.overlap:.1%}", f"{phase.throughput:,.0f}", str(failed))
    console.print(table)


def _unit_of(phases: Sequence[PhaseResult]) -> WorkUnit:
    units = {counted_by(target.driver) for phase in phases for target in phase.targets}
    return units.pop() if len(units) == 1 else MIXED


def _print_phase(console: Console, phase: PhaseResult) -> None:
    from rich.table import Table

    from pgherd.study.guests import EMULATION_REASON, is_emulated

    unit = _unit_of([phase])
    window = f"Phase '{phase.phase}': {phase.seconds:.2f} s in which all drivers ran ({phase.overlap:.1%} of the period)"
    if is_emulated([phase]):
        console.print(f"{window}; {EMULATION_REASON}.", markup=False)
        return
    if unit == counted_by("command"):
        console.print(f"{window}.", markup=False)
        for target in phase.targets:
            values = ", ".join(f"{name.removeprefix('value:').replace('_', ' ')} {value:.6g}" for name, value in target.values.items())
            cpu = f"CPU {target.client_cpu_seconds:.3g} s" if target.client_cpu_seconds is not None else "CPU unknown"
            console.print(f"  {target.target}: {values}{', ' if values else ''}{cpu}", markup=False)
        return
    console.print(f"{window}, total {phase.throughput:,.0f} {unit.many}/s.", markup=False)
    if any(target.slices for target in phase.targets):
        count, share = max((len(target.slices), phase.loaded(target)) for target in phase.targets)
        slices = f"Loads ran in time slices, at most {count} each, {share:.0%} of the period"
        console.print(f"{slices}. {unit.unit} is per second of a load's slices; client cores are over the period.", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("target")
    for name in (unit.unit, "mean ms", "p50 ms", "p95 ms", "p99 ms", "sampled", "client cores", "failed"):
        table.add_column(name, justify="right")
    for target in phase.targets:
        table.add_row(*_target_row(target))
    console.print(table)


def _target_row(target: TargetResult) -> list[str]:
    latency = target.latency
    times = [f"{value:.3g}" if value is not None else "–" for value in (latency.mean, latency.p50, latency.p95, latency.p99)]
    client = f"{target.client_cpu:.3f}" if target.client_cpu is not None else "–"
    return [target.target, f"{target.throughput:,.0f}", *times, str(latency.sampled), client, str(target.failed)]
