"""Scripts that repeat a trial of fio, iperf3 or a command with that tool alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import ceil

from pgherd.drivers import command, fio, iperf3
from pgherd.drivers.driver import Endpoint
from pgherd.host.namespaces import BURST, CARDS, FAR, NEAR, PREFIX_LENGTH
from pgherd.model.deployment import Link
from pgherd.model.errors import UsageError
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.formatting import clean, shell_comment
from pgherd.report.repro_volumes import default_line, variable, variable_part

_OURS = ("--output", "--write_iops_log", "--log_", "--eta", "--runtime")
"""What of pgherd's command line is for its own reading of the results; the run time is the phase's."""
_PLACE = "\0PLACE\0"


def fio_script(result: TrialResult, record: RunRecord) -> str:
    """The fio_script for one trial whose loads are all fio's on volumes.

    It makes a private directory on each volume, writes fio's file there, runs the trial's own command lines at once, prints
    fio's report of each, and removes the directories. A volume that pgherd made itself (a loop device, a device that it
    formatted) is named by the user, mounted, in ``DIR_NAME``. Of a trial on several hosts it is the first one's part.
    """
    hosts = list(dict.fromkeys(volume.host for volume in result.trial.deployment.volumes if volume.host is not None))
    together = f"In the run {len(hosts)} hosts did this at the same time: {', '.join(hosts)}. This is what {hosts[0]} did." if hosts else ""
    return "\n".join(_fio_lines(_fio_host_part(result, hosts[0]) if hosts else result, record, together)) + "\n"


def _fio_host_part(result: TrialResult, host: str) -> TrialResult:
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


def _fio_lines(result: TrialResult, record: RunRecord, together: str) -> Iterator[str]:
    trial = result.trial
    volumes = {volume.name: volume for volume in trial.deployment.volumes}
    used = {target: load for phase in trial.phases for target, load in phase.loads.items()}
    version = record.tools.get("fio", "of any version from 3.0 on")
    yield "#!/bin/sh"
    yield shell_comment(f"Repeats trial {result.id} ({trial.key()}) of run {record.run} with nothing but fio (it was fio {version}).")
    if together:
        yield shell_comment(together)
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
        yield f"{_fio_quoted([variable_part for variable_part in argv if not variable_part.startswith('--output')], place)} >/dev/null"
    for number, phase in enumerate(trial.phases):
        yield ""
        yield from _fio_phase(phase, result.phases[number] if number < len(result.phases) else None)


def _fio_phase(phase: Phase, measured: PhaseResult | None) -> Iterator[str]:
    yield shell_comment(f"Phase '{phase.name}': {phase.ramp:g} s of ramp-up and {phase.seconds:g} s that pgherd measured.")
    for one in measured.targets if measured else ():
        yield shell_comment(f"In these it counted {one.throughput:,.1f} I/Os per second on {one.target}.")
    single = len(phase.loads) == 1
    for target, load in phase.loads.items():
        place = f"at_{variable_part(target)}"
        words = _fio_quoted(_fio_argv(load, phase), place)
        if single:
            yield words
        else:
            yield f'{words} --output="${place}/report" &'
    if not single:
        yield "wait"
        for target in phase.loads:
            yield f"echo {shlex.quote(f'volume {clean(target)}:')}"
            yield f'cat -- "$at_{variable_part(target)}/report"'


def _fio_argv(load: Load, phase: Phase) -> list[str]:
    endpoint = Endpoint(target="", bin="", host="", port=0, database="", user="", output=".", directory=_PLACE)
    argv = [variable_part for variable_part in fio.DRIVER.argv(load, endpoint, 1) if not variable_part.startswith(_OURS)]
    return [*argv, f"--runtime={ceil(phase.seconds)}"]


def _fio_quoted(argv: list[str], place: str) -> str:
    """The words for the shell, with the fio_script's variable where the volume's directory stands."""
    found = []
    for one in argv:
        before, mark, after = one.partition(_PLACE)
        found.append(
            f'{shlex.quote(before) if before else ""}"${place}"{shlex.quote(after) if after else ""}' if mark else shlex.quote(one)
        )
    return " ".join(found)


def iperf3_script(result: TrialResult, record: RunRecord) -> str:
    """The iperf3_script for one trial whose one load is iperf3's on a link. It prints iperf3's own report in words.

    Raises:
        UsageError: the trial has several phases or loads.
    """
    if len(result.trial.phases) != 1 or len(result.trial.phases[0].loads) != 1:
        raise UsageError(f"trial {result.id} cannot be repeated by a iperf3_script: it loads several links, or in several phases")
    return "\n".join(_iperf3_lines(result, record)) + "\n"


def _iperf3_lines(result: TrialResult, record: RunRecord) -> Iterator[str]:
    phase = result.trial.phases[0]
    (target, load), *_ = phase.loads.items()
    link = next(one for one in result.trial.deployment.links if one.target == target)
    host = FAR if link.kind == "namespaces" else link.host
    endpoint = Endpoint(target, "", host, link.port, "", "", "")
    argv = [
        variable_part for variable_part in iperf3.DRIVER.argv(load, endpoint, ceil(phase.ramp + phase.seconds)) if variable_part != "--json"
    ]
    # What pgherd leaves out as its ramp-up, iperf3 can leave out by itself.
    argv[argv.index("--time") + 1] = str(max(1, ceil(phase.seconds)))
    argv += ["--omit", str(ceil(phase.ramp))] if phase.ramp else []
    version = record.tools.get("iperf3", "of any version 3")
    yield "#!/bin/sh"
    yield shell_comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with nothing but iperf3 (it was {version}).")
    yield from (f"# {line}" for line in _iperf3_results(result))
    yield "set -eu"
    if link.kind == "remote":
        yield shell_comment(f"'iperf3 --server --port {link.port}' must run on {link.host}.")
        yield shlex.join(argv)
        return
    if link.kind == "hosts":
        yield shell_comment(
            f"For host {link.near}. First, on host {link.name}: iperf3 --server --one-off --bind {link.host} --port {link.port}"
        )
        yield shlex.join(argv)
        return
    yield "# As root: two network namespaces, held by two processes; they go with them."
    yield from _iperf3_namespaces(link)
    yield f"nsenter --net=/proc/$near/ns/net -- {shlex.join(argv)}"


def _iperf3_namespaces(link: Link) -> Iterator[str]:
    yield "server="
    yield "unshare --net sleep infinity & near=$!"
    yield "unshare --net sleep infinity & far=$!"
    yield "trap 'kill $near $far $server' EXIT"
    yield "sleep 0.5"
    yield 'near() { nsenter --net=/proc/$near/ns/net -- "$@"; }'
    yield 'far() { nsenter --net=/proc/$far/ns/net -- "$@"; }'
    yield f"ip link add {CARDS[0]} netns $near type veth peer name {CARDS[1]} netns $far"
    for name, card, address in (("near", CARDS[0], NEAR), ("far", CARDS[1], FAR)):
        yield f"{name} ip address add {address}/{PREFIX_LENGTH} dev {card}"
        yield f"{name} ip link set {card} up"
        if link.delay is not None:
            yield f"{name} tc qdisc add dev {card} root handle 1: netem delay {link.delay:g}ms limit 100000"
    if link.rate is not None:
        place = "root" if link.delay is None else "parent 1:"
        yield f"near tc qdisc add dev {CARDS[0]} {place} tbf rate {link.rate:.0f}bit burst {BURST} latency 50ms"
    yield f"nsenter --net=/proc/$far/ns/net -- iperf3 --server --bind {FAR} --port {link.port} >/dev/null 2>&1 & server=$!"
    yield "sleep 0.5"


def _iperf3_results(result: TrialResult) -> Iterator[str]:
    for phase in result.phases:
        for target in phase.targets:
            speed = target.values.get("bits_per_second", 0.0)
            yield f"It measured {speed / 1e6:,.1f} Mbit/s on {target.target} over {phase.seconds:.2f} s."


def command_script(result: TrialResult, record: RunRecord) -> str:
    """The command_script for one trial, on one host.

    Raises:
        UsageError: the trial has several phases, or a word of the command holds a NUL character.
    """
    if len(result.trial.phases) != 1 or not result.trial.phases[0].loads:
        raise UsageError(f"trial {result.id} cannot be repeated by a command_script: it has several phases, or no load")
    text = "\n".join(_command_lines(result, record)) + "\n"
    if "\0" in text:
        raise UsageError(f"trial {result.id} cannot be repeated by a command_script: it holds a NUL character")
    return text


def _command_lines(result: TrialResult, record: RunRecord) -> Iterator[str]:
    phase = result.trial.phases[0]
    load = next(iter(phase.loads.values()))
    account = record.surroundings.run_as if record.surroundings else None
    who = "root" if load.options.get("privileged") == "1" else account
    yield "#!/bin/sh"
    yield shell_comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with nothing but the command itself.")
    if len(phase.loads) > 1:
        yield shell_comment(f"In the run {len(phase.loads)} hosts did this at the same time: {', '.join(phase.loads)}.")
    if who is not None:
        yield shell_comment(f"It ran as account {who}.")
    yield from (shell_comment(text) for text in _command_results(result))
    yield "set -eu"
    options = load.options
    directory = [f"--chdir={options['cwd']}"] if "cwd" in options else []
    ended = [] if phase.until == "drivers" else ["timeout", f"{phase.ramp + phase.seconds:g}"]
    words = ["LC_ALL=C", "TZ=UTC", *command.variables(load), *ended, *command.command_of(load)]
    # As pgherd starts it: of the caller's environment it has PATH alone.
    yield f'{shlex.join(["env", "-i", *directory])} PATH="$PATH" {shlex.join(words)}'


def _command_results(result: TrialResult) -> Iterator[str]:
    for phase in result.phases:
        for one in phase.targets:
            for name, value in one.values.items():
                yield f"There {name.removeprefix(command.VALUE).replace('_', ' ')} was {value:.6g} ({one.target})."
