"""A trial of fio on volumes as a shell script that repeats it with nothing but fio."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import ceil

from pgherd.drivers import fio
from pgherd.drivers.driver import Endpoint
from pgherd.model.deployment import Volume
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.wording import clean

_OURS = ("--output", "--write_iops_log", "--log_", "--eta", "--runtime")
"""What of pgherd's command line is for its own reading of the results; the run time is the phase's."""
_PLACE = "\0PLACE\0"


def script(result: TrialResult, record: RunRecord) -> str:
    """The script for one trial whose loads are all fio's on volumes.

    It makes a private directory on each volume, writes fio's file there, runs the trial's own command lines at once, prints
    fio's report of each, and removes the directories. A volume that pgherd made itself (a loop device, a device that it
    formatted) is named by the user, mounted, in ``DIR_NAME``.
    """
    return "\n".join(_lines(result, record)) + "\n"


def _lines(result: TrialResult, record: RunRecord) -> Iterator[str]:
    trial = result.trial
    volumes = {volume.name: volume for volume in trial.deployment.volumes}
    used = {target: load for phase in trial.phases for target, load in phase.loads.items()}
    version = record.tools.get("fio", "of any version from 3.0 on")
    yield "#!/bin/sh"
    yield _comment(f"Repeats trial {result.id} ({trial.key()}) of run {record.run} with nothing but fio (it was fio {version}).")
    yield "# It writes fio's file into a private directory on each volume, runs fio on it, prints fio's own reports and removes the"
    yield "# directories. pgherd's figures are over a common window, and so may differ a little."
    for name in used:
        yield f"# In the environment: {_variable(name)}, the directory on volume {clean(name)} in which that is done."
    yield "set -eu"
    for name in used:
        yield _where(volumes[name])
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
        place = f"at_{_word(name)}"
        yield f'{place}=$(mktemp -d -- "${_variable(name)}/repeat-XXXXXX")'
        yield f'set -- "$@" "${place}"'
        argv = fio.file_argv(_PLACE, sizes[name], direct=load.options.get("direct", "1") == "1")
        yield f"{_quoted([word for word in argv if not word.startswith('--output')], place)} >/dev/null"
    for number, phase in enumerate(trial.phases):
        yield ""
        yield from _phase(phase, result.phases[number] if number < len(result.phases) else None)


def _phase(phase: Phase, measured: PhaseResult | None) -> Iterator[str]:
    yield _comment(f"Phase '{phase.name}': {phase.ramp:g} s of ramp-up and {phase.seconds:g} s that pgherd measured.")
    for one in measured.targets if measured else ():
        yield _comment(f"In these it counted {one.throughput:,.1f} I/Os per second on {one.target}.")
    single = len(phase.loads) == 1
    for target, load in phase.loads.items():
        place = f"at_{_word(target)}"
        words = _quoted(_argv(load, phase), place)
        if single:
            yield words
        else:
            yield f'{words} --output="${place}/report" &'
    if not single:
        yield "wait"
        for target in phase.loads:
            yield f"echo {shlex.quote(f'volume {clean(target)}:')}"
            yield f'cat -- "$at_{_word(target)}/report"'


def _argv(load: Load, phase: Phase) -> list[str]:
    endpoint = Endpoint(target="", bin="", host="", port=0, database="", user="", output=".", directory=_PLACE)
    argv = [word for word in fio.DRIVER.argv(load, endpoint, 1) if not word.startswith(_OURS)]
    return [*argv, f"--runtime={ceil(phase.seconds)}"]


def _where(volume: Volume) -> str:
    variable = _variable(volume.name)
    if volume.kind == "directory" and volume.path is not None:
        return f'[ -n "${{{variable}:-}}" ] || {variable}={shlex.quote(volume.path)}'
    what = f"a {volume.kind} volume that pgherd made and took away: name a mounted directory in {variable}"
    return f': "${{{variable}:?{what}}}"'


def _word(name: str) -> str:
    return name.replace("-", "_")


def _variable(name: str) -> str:
    return f"DIR_{_word(name)}"


def _quoted(argv: list[str], place: str) -> str:
    """The words for the shell, with the script's variable where the volume's directory stands."""
    found = []
    for word in argv:
        before, mark, after = word.partition(_PLACE)
        found.append(
            f'{shlex.quote(before) if before else ""}"${place}"{shlex.quote(after) if after else ""}' if mark else shlex.quote(word)
        )
    return " ".join(found)


def _comment(text: str) -> str:
    return "# " + " ".join(clean(text).split())
