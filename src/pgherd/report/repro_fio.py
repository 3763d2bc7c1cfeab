"""A trial of fio on volumes as a shell script that repeats it with nothing but fio."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import ceil

from pgherd.drivers import fio
from pgherd.drivers.driver import Endpoint
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.formatting import clean
from pgherd.report.repro_volumes import default_line, variable, variable_part

_OURS = ("--output", "--write_iops_log", "--log_", "--eta", "--runtime")
"""What of pgherd's command line is for its own reading of the results; the run time is the phase's."""
_PLACE = "\0PLACE\0"


def script(result: TrialResult, record: RunRecord) -> str:
    """The script for one trial whose loads are all fio's on volumes.

    It makes a private directory on each volume, writes fio's file there, runs the trial's own command lines at once, prints
    fio's report of each, and removes the directories. A volume that pgherd made itself (a loop device, a device that it
    formatted) is named by the user, mounted, in ``DIR_NAME``. Of a trial on several hosts it is the first one's part.
    """
    hosts = list(dict.fromkeys(volume.host for volume in result.trial.deployment.volumes if volume.host is not None))
    together = f"In the run {len(hosts)} hosts did this at the same time: {', '.join(hosts)}. This is what {hosts[0]} did." if hosts else ""
    return "\n".join(_lines(_part(result, hosts[0]) if hosts else result, record, together)) + "\n"


def _part(result: TrialResult, host: str) -> TrialResult:
    """What one host did of a trial, as if it had been alone."""

    def own(target: str) -> bool:
        return target.startswith(f"{host}/")

    def name(target: str) -> str:
        return target.removeprefix(f"{host}/")

    trial = result.trial
    volumes = tuple(volume.model_copy(update={"host": None}) for volume in trial.deployment.volumes if volume.host == host)
    planned = tuple(p.model_copy(update={"loads": {name(t): load for t, load in p.loads.items() if own(t)}}) for p in trial.phases)
    measured = [
        phase.model_copy(
            update={"targets": [one.model_copy(update={"target": name(one.target)}) for one in phase.targets if own(one.target)]}
        )
        for phase in result.phases
    ]
    deployment = trial.deployment.model_copy(update={"volumes": volumes})
    return result.model_copy(update={"trial": trial.model_copy(update={"deployment": deployment, "phases": planned}), "phases": measured})


def _lines(result: TrialResult, record: RunRecord, together: str) -> Iterator[str]:
    trial = result.trial
    volumes = {volume.name: volume for volume in trial.deployment.volumes}
    used = {target: load for phase in trial.phases for target, load in phase.loads.items()}
    version = record.tools.get("fio", "of any version from 3.0 on")
    yield "#!/bin/sh"
    yield _comment(f"Repeats trial {result.id} ({trial.key()}) of run {record.run} with nothing but fio (it was fio {version}).")
    if together:
        yield _comment(together)
    yield "# It writes fio's file into a private directory on each volume, runs fio on it, prints fio's own reports and removes the"
    yield "# directories. pgherd's figures are over a common window, and so may differ a little."
    for name in used:
        yield f"# In the environment: {variable(name)}, the directory on volume {clean(name)} in which that is done."
    yield "set -eu"
    for name in used:
        yield default_line(volumes[name])
    yield "set --  # the directories that it has made"
    yield "trap 'rm -rf -- \"$@\"' EXIT"
    yield "trap 'exit 130' INT TERM"
    yield "command -v fio >/dev/null || { echo 'fio is not installed' >&2; exit 3; }"
    yield ""
    sizes: dict[str, int] = {}
    for phase in trial.phases:
        for target, load in phase.loads.items():
            sizes[target] = max(sizes.get(target, 0), int(load.options["size"]))
    for name, load in used.items():
        place = f"at_{variable_part(name)}"
        yield f'{place}=$(mktemp -d -- "${variable(name)}/repeat-XXXXXX")'
        yield f'set -- "$@" "${place}"'
        argv = fio.file_argv(_PLACE, sizes[name], direct=load.options.get("direct", "1") == "1")
        yield f"{_quoted([variable_part for variable_part in argv if not variable_part.startswith('--output')], place)} >/dev/null"
    for number, phase in enumerate(trial.phases):
        yield ""
        yield from _phase(phase, result.phases[number] if number < len(result.phases) else None)


def _phase(phase: Phase, measured: PhaseResult | None) -> Iterator[str]:
    yield _comment(f"Phase '{phase.name}': {phase.ramp:g} s of ramp-up and {phase.seconds:g} s that pgherd measured.")
    for one in measured.targets if measured else ():
        yield _comment(f"In these it counted {one.throughput:,.1f} I/Os per second on {one.target}.")
    single = len(phase.loads) == 1
    for target, load in phase.loads.items():
        place = f"at_{variable_part(target)}"
        words = _quoted(_argv(load, phase), place)
        if single:
            yield words
        else:
            yield f'{words} --output="${place}/report" &'
    if not single:
        yield "wait"
        for target in phase.loads:
            yield f"echo {shlex.quote(f'volume {clean(target)}:')}"
            yield f'cat -- "$at_{variable_part(target)}/report"'


def _argv(load: Load, phase: Phase) -> list[str]:
    endpoint = Endpoint(target="", bin="", host="", port=0, database="", user="", output=".", directory=_PLACE)
    argv = [variable_part for variable_part in fio.DRIVER.argv(load, endpoint, 1) if not variable_part.startswith(_OURS)]
    return [*argv, f"--runtime={ceil(phase.seconds)}"]


def _quoted(argv: list[str], place: str) -> str:
    """The words for the shell, with the script's variable where the volume's directory stands."""
    found = []
    for one in argv:
        before, mark, after = one.partition(_PLACE)
        found.append(
            f'{shlex.quote(before) if before else ""}"${place}"{shlex.quote(after) if after else ""}' if mark else shlex.quote(one)
        )
    return " ".join(found)


def _comment(text: str) -> str:
    return "# " + " ".join(clean(text).split())
