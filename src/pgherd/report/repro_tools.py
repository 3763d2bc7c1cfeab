"""Scripts that repeat a trial with its tool alone: pgbench on external servers, fio, iperf3 or a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from pgherd.drivers import command, fio, iperf3
from pgherd.drivers.driver import Endpoint, driver_named
from pgherd.host.netns import BURST, CARDS, FAR, NEAR, PREFIX_LENGTH
from pgherd.model.deployment import Link
from pgherd.model.errors import UsageError
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.node.process import CHRT_BATCH
from pgherd.postgres.external_server import READ_ONLY, READ_ONLY_PROBE
from pgherd.report.repro_parts import comment, default_line, join, quote, say, variable, variable_part

_BIN, _WORK = "\0BIN\0", "\0WORK\0"
_VARIABLES = {_BIN: '"$BIN"', _WORK: '"$work"'}
_ADDRESS = 7
"""Arguments at the end of pgbench's command line that name the server: -h HOST -p PORT -U USER DATABASE."""


def uses_external_servers(result: TrialResult) -> bool:
    """Return whether pgbench loads only external servers in this trial."""
    servers = [server for _, _, server in result.trial.deployment.servers()]
    driver_names = {load.driver for phase in result.trial.phases for load in phase.loads.values()}
    return bool(servers) and all(server.dsn for server in servers) and driver_names == {"pgbench"}


def external_script(result: TrialResult, record: RunRecord, files: Mapping[str, str]) -> str:
    """Return the script. ``files`` maps the user's scripts to their current files."""
    servers = {container.name: server for _, container, server in result.trial.deployment.servers()}
    lines = [
        "#!/bin/sh",
        comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with pgbench only."),
        "#",
        "# The servers are external. The script does not configure, start or stop them. They may have changed since the run.",
        "# Their addresses have no passwords: put these into ~/.pgpass or PGPASSWORD.",
        "# Environment: BIN, the directory with pgbench.",
        "set -eu",
        f'[ -n "${{BIN:-}}" ] || BIN={quote(next(iter(servers.values())).bin)}',
        "work=$(mktemp -d)",
        """trap 'rm -rf -- "$work"' EXIT""",
        "trap 'exit 130' INT TERM HUP",
        "",
        *_external_checks(result, {name: str(server.dsn) for name, server in servers.items()}),
    ]
    for number, phase in enumerate(result.trial.phases):
        lines.append(comment(f"Phase '{phase.name}': {phase.warmup:g} s of warm-up and {phase.seconds:g} s measured by pgherd."))
        if number < len(result.phases):
            lines.append(f"# In these, pgherd measured {result.phases[number].throughput:.1f} transactions per second in total.")
        lines += _external_phase(phase, result, {name: str(server.dsn) for name, server in servers.items()}, files)
    return "\n".join(lines) + "\n"


def _external_checks(result: TrialResult, dsns: Mapping[str, str]) -> Iterator[str]:
    """Yield commands that end the script unless the sessions of loads that only read are read-only."""
    readers = {target for phase in result.trial.phases for target, load in phase.loads.items() if load.read_only}
    names = sorted({dsns[target.split("/")[1]] for target in readers})
    if not names:
        return
    yield "# A connection pooler may ignore PGOPTIONS. Then the sessions would not be read-only."
    yield "read_only() {"
    yield f"    echo {quote(READ_ONLY_PROBE.strip())} |"
    yield f"""        PGOPTIONS={quote(READ_ONLY)} "$BIN/pgbench" -n -M simple -c 1 -t 1 -f - "$1" >"$work/try" 2>&1 && return"""
    yield '    cat "$work/try" >&2'
    yield "    echo 'No connection, or its sessions are not read-only. Nothing was run.' >&2"
    yield "    exit 1"
    yield "}"
    for dsn in names:
        yield f"read_only {quote(dsn)}"
    yield ""


def _external_phase(phase: Phase, result: TrialResult, dsns: Mapping[str, str], files: Mapping[str, str]) -> Iterator[str]:
    numbers = []
    for number, (target, load) in enumerate(phase.loads.items(), 1):
        options = f"PGOPTIONS={quote(READ_ONLY)} " if load.read_only else ""
        arguments = join(_external_argv(f"{number:03d}", target, load, phase, result, files), _VARIABLES)
        dsn = quote(dsns[target.split("/")[1]])
        numbers.append(number)
        yield f'mkdir -p "$work/{number:03d}"'
        yield f'{options}{arguments} -- {dsn} >"$work/{number:03d}/out" & pid{number}=$!'
    for number in numbers:
        yield f"wait $pid{number}"
    for number, target in zip(numbers, phase.loads, strict=True):
        yield f"{say(target)}; grep '^tps' \"$work/{number:03d}/out\""


def _external_argv(number: str, target: str, load: Load, phase: Phase, result: TrialResult, files: Mapping[str, str]) -> list[str]:
    """Return the driver's command line until the end of the phase, without the server's address."""
    database = next(database for address, *_, database in result.trial.deployment.databases() if str(address) == target)
    scripts = tuple(script.model_copy(update={"source": files.get(script.source, script.source)}) for script in load.scripts)
    endpoint = Endpoint(target=target, bin=_BIN, host="-", port=1, database="-", user="-", output=f"{_WORK}/{number}", scale=database.scale)
    argv = driver_named(load.driver).argv(load.model_copy(update={"scripts": scripts}), endpoint, ceil(phase.warmup + phase.seconds))
    return [*(CHRT_BATCH if load.sched_batch else ()), *argv[:-_ADDRESS]]


_PGHERD_OPTIONS = ("--output", "--write_iops_log", "--log_", "--eta", "--runtime")
"""Options with which pgherd reads the results. The run time is that of the phase."""
_DIRECTORY = "\0DIRECTORY\0"


def fio_script(result: TrialResult, record: RunRecord) -> str:
    """Return the script for one trial with loads of fio on volumes only.

    It creates a private directory on each volume, lays out fio's file there, runs the trial's command lines at the same time, prints fio's
    reports and removes the directories. For a volume made by pgherd (loop device, formatted device) the user names a mounted directory in
    ``DIR_NAME``. For a trial on several hosts it is the part of the first one.
    """
    hosts = list(dict.fromkeys(volume.host for volume in result.trial.deployment.volumes if volume.host is not None))
    together = (
        f"In the run {len(hosts)} hosts did this at the same time: {', '.join(hosts)}. This is the part of {hosts[0]}." if hosts else ""
    )
    return "\n".join(_fio_lines(_fio_host_part(result, hosts[0]) if hosts else result, record, together)) + "\n"


def _fio_host_part(result: TrialResult, host: str) -> TrialResult:
    """Return the part of one host in a trial, as a trial on that host only."""

    def is_local(target: str) -> bool:
        return target.startswith(f"{host}/")

    def name(target: str) -> str:
        return target.removeprefix(f"{host}/")

    trial = result.trial
    volumes = tuple(volume.model_copy(update={"host": None}) for volume in trial.deployment.volumes if volume.host == host)
    planned = tuple(p.model_copy(update={"loads": {name(t): load for t, load in p.loads.items() if is_local(t)}}) for p in trial.phases)
    measured = [
        phase.model_copy(
            update={
                "targets": [
                    target.model_copy(update={"target": name(target.target)}) for target in phase.targets if is_local(target.target)
                ]
            }
        )
        for phase in result.phases
    ]
    deployment = trial.deployment.model_copy(update={"volumes": volumes})
    return result.model_copy(update={"trial": trial.model_copy(update={"deployment": deployment, "phases": planned}), "phases": measured})


def _fio_lines(result: TrialResult, record: RunRecord, together: str) -> Iterator[str]:
    trial = result.trial
    volumes = {volume.name: volume for volume in trial.deployment.volumes}
    used = {target: load for phase in trial.phases for target, load in phase.loads.items()}
    version = record.tools.get("fio", "version unknown, at least 3.0")
    yield "#!/bin/sh"
    yield comment(f"Repeats trial {result.id} ({trial.key()}) of run {record.run} with fio only (in the run: {version}).")
    if together:
        yield comment(together)
    yield "# It lays out fio's file in a private directory on each volume, runs fio on it, prints fio's reports and removes the"
    yield "# directories. pgherd uses a common window, so its numbers may differ slightly."
    for name in used:
        yield comment(f"Environment: {variable(name)}, the directory on volume {name}.")
    yield "set -eu"
    for name in used:
        yield default_line(volumes[name])
    yield "set --  # directories created by this script"
    yield "trap 'rm -rf -- \"$@\"' EXIT"
    yield "trap 'exit 130' INT TERM"
    yield "command -v fio >/dev/null || { echo 'fio is not installed' >&2; exit 3; }"
    yield ""
    sizes: dict[str, int] = {}
    for phase in trial.phases:
        for target, load in phase.loads.items():
            sizes[target] = max(sizes.get(target, 0), int(load.options["size"]))
    for name, load in used.items():
        directory = f"at_{variable_part(name)}"
        yield f'{directory}=$(mktemp -d -- "${variable(name)}/repeat-XXXXXX")'
        yield f'set -- "$@" "${directory}"'
        argv = fio.file_argv(_DIRECTORY, sizes[name], direct=load.options.get("direct", "1") == "1")
        yield f"{_fio_quoted([variable_part for variable_part in argv if not variable_part.startswith('--output')], directory)} >/dev/null"
    for number, phase in enumerate(trial.phases):
        yield ""
        yield from _fio_phase(phase, result.phases[number] if number < len(result.phases) else None)


def _fio_phase(phase: Phase, measured: PhaseResult | None) -> Iterator[str]:
    yield comment(f"Phase '{phase.name}': {phase.warmup:g} s of warm-up and {phase.seconds:g} s measured by pgherd.")
    for target_result in measured.targets if measured else ():
        yield comment(f"In these, pgherd measured {target_result.throughput:,.1f} I/Os per second on {target_result.target}.")
    single = len(phase.loads) == 1
    for target, load in phase.loads.items():
        directory = f"at_{variable_part(target)}"
        arguments = _fio_quoted(_fio_argv(load, phase), directory)
        if single:
            yield arguments
        else:
            yield f'{arguments} --output="${directory}/report" &'
    if not single:
        yield "wait"
        for target in phase.loads:
            yield say(f"volume {target}:")
            yield f'cat -- "$at_{variable_part(target)}/report"'


def _fio_argv(load: Load, phase: Phase) -> list[str]:
    endpoint = Endpoint(target="", bin="", host="", port=0, database="", user="", output=".", directory=_DIRECTORY)
    argv = [variable_part for variable_part in fio.DRIVER.argv(load, endpoint, 1) if not variable_part.startswith(_PGHERD_OPTIONS)]
    return [*argv, f"--runtime={ceil(phase.seconds)}"]


def _fio_quoted(argv: list[str], variable_name: str) -> str:
    """Return the words for the shell, with the script's variable in place of the volume's directory."""
    return join(argv, {_DIRECTORY: f'"${variable_name}"'})


def iperf3_script(result: TrialResult, record: RunRecord) -> str:
    """Return the script for one trial with one iperf3 load on a link. It prints iperf3's text report.

    Raises:
        UsageError: the trial has several phases or loads.
    """
    if len(result.trial.phases) != 1 or len(result.trial.phases[0].loads) != 1:
        raise UsageError(f"trial {result.id} cannot be repeated by a iperf3_script: it has several links or phases")
    return "\n".join(_iperf3_lines(result, record)) + "\n"


def _iperf3_lines(result: TrialResult, record: RunRecord) -> Iterator[str]:
    phase = result.trial.phases[0]
    (target, load), *_ = phase.loads.items()
    link = next(link for link in result.trial.deployment.links if link.target == target)
    host = FAR if link.kind == "namespaces" else link.host
    endpoint = Endpoint(target, "", host, link.port, "", "", "")
    argv = [
        variable_part
        for variable_part in iperf3.DRIVER.argv(load, endpoint, ceil(phase.warmup + phase.seconds))
        if variable_part != "--json"
    ]
    # iperf3 can omit the warm-up from its result.
    argv[argv.index("--time") + 1] = str(max(1, ceil(phase.seconds)))
    argv += ["--omit", str(ceil(phase.warmup))] if phase.warmup else []
    version = record.tools.get("iperf3", "version 3")
    yield "#!/bin/sh"
    yield comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with iperf3 only (in the run: {version}).")
    yield from (comment(text) for text in _iperf3_results(result))
    yield "set -eu"
    if link.kind == "remote":
        yield comment(f"'iperf3 --server --port {link.port}' must run on {link.host}.")
        yield join(argv)
        return
    if link.kind == "hosts":
        yield comment(f"For host {link.near}. First, on host {link.name}: iperf3 --server --one-off --bind {link.host} --port {link.port}")
        yield join(argv)
        return
    yield "# As root: two network namespaces, which end with their two processes."
    yield from _iperf3_namespaces(link)
    yield f"nsenter --net=/proc/$near/ns/net -- {join(argv)}"


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
        parent = "root" if link.delay is None else "parent 1:"
        yield f"near tc qdisc add dev {CARDS[0]} {parent} tbf rate {link.rate:.0f}bit burst {BURST} latency 50ms"
    yield f"nsenter --net=/proc/$far/ns/net -- iperf3 --server --bind {FAR} --port {link.port} >/dev/null 2>&1 & server=$!"
    yield "sleep 0.5"


def _iperf3_results(result: TrialResult) -> Iterator[str]:
    for phase in result.phases:
        for target in phase.targets:
            speed = target.values.get("bits_per_second", 0.0)
            yield f"It measured {speed / 1e6:,.1f} Mbit/s on {target.target} over {phase.seconds:.2f} s."


def command_script(result: TrialResult, record: RunRecord) -> str:
    """Return the script for one trial, on one host.

    Raises:
        UsageError: the trial has several phases, or an argument of the command contains a NUL character.
    """
    if len(result.trial.phases) != 1 or not result.trial.phases[0].loads:
        raise UsageError(f"trial {result.id} cannot be repeated by a command_script: it has several phases or no load")
    return "\n".join(_command_lines(result, record)) + "\n"


def _command_lines(result: TrialResult, record: RunRecord) -> Iterator[str]:
    phase = result.trial.phases[0]
    load = next(iter(phase.loads.values()))
    run_as = record.environment.run_as if record.environment else None
    user = "root" if load.options.get("privileged") == "1" else run_as
    yield "#!/bin/sh"
    yield comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with the command only.")
    if len(phase.loads) > 1:
        yield comment(f"In the run {len(phase.loads)} hosts did this at the same time: {', '.join(phase.loads)}.")
    if user is not None:
        yield comment(f"It ran as user {user}.")
    yield from (comment(text) for text in _command_results(result))
    yield "set -eu"
    options = load.options
    directory = [f"--chdir={options['cwd']}"] if "cwd" in options else []
    timeout = [] if phase.until == "drivers" else ["timeout", f"{phase.warmup + phase.seconds:g}"]
    names = command.variables(load)
    words = [*(f"{name}={value}" for name, value in (("LC_ALL", "C"), ("TZ", "UTC")) if name not in names), *timeout]
    words += command.command_of(load)
    if not names:  # As in the run, PATH is the only inherited variable.
        yield f'{join(["env", "-i", *directory])} PATH="$PATH" {join(words)}'
        return
    yield comment(f"The run has not recorded the values of these variables; set them before: {', '.join(names)}.")
    yield from (f': "${{{name}?is not set}}"; export {name}' for name in names)
    yield "# As in the run, no other variable is inherited, except PATH. No value is in a command line, which all users can read."
    yield "names() { env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/--unset=\\1/p'; }"
    yield "# shellcheck disable=SC2046 # names"
    yield f"{join(['env', *directory])} $(names | grep -vxE -e '--unset=({'|'.join(['PATH', *names])})') {join(words)}"


def _command_results(result: TrialResult) -> Iterator[str]:
    for phase in result.phases:
        for target in phase.targets:
            for name, value in target.values.items():
                yield f"In the run, {name.removeprefix(command.VALUE).replace('_', ' ')} was {value:.6g} ({target.target})."
