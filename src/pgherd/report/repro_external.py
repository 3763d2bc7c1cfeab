"""Shell script that repeats a trial on external servers with pgbench only. It makes one directory for logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from pgherd.drivers import registry as drivers
from pgherd.drivers.driver import Endpoint
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.node.process import CHRT_BATCH
from pgherd.postgres.external_server import READ_ONLY, READ_ONLY_PROBE
from pgherd.report.shell_text import comment, join, quote, say

_BIN, _WORK = "\0BIN\0", "\0WORK\0"
_VARIABLES = {_BIN: '"$BIN"', _WORK: '"$work"'}
_ADDRESS = 7
"""Arguments at the end of pgbench's command line that name the server: -h HOST -p PORT -U USER DATABASE."""


def uses_external_servers(result: TrialResult) -> bool:
    """Return whether pgbench loads only external servers in this trial."""
    servers = [server for _, _, server in result.trial.deployment.servers()]
    driver_names = {load.driver for phase in result.trial.phases for load in phase.loads.values()}
    return bool(servers) and all(server.dsn for server in servers) and driver_names == {"pgbench"}


def script(result: TrialResult, record: RunRecord, files: Mapping[str, str]) -> str:
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
        *_checks(result, {name: str(server.dsn) for name, server in servers.items()}),
    ]
    for number, phase in enumerate(result.trial.phases):
        lines.append(comment(f"Phase '{phase.name}': {phase.warmup:g} s of warm-up and {phase.seconds:g} s measured by pgherd."))
        if number < len(result.phases):
            lines.append(f"# In these, pgherd measured {result.phases[number].throughput:.1f} transactions per second in total.")
        lines += _phase(phase, result, {name: str(server.dsn) for name, server in servers.items()}, files)
    return "\n".join(lines) + "\n"


def _checks(result: TrialResult, dsns: Mapping[str, str]) -> Iterator[str]:
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


def _phase(phase: Phase, result: TrialResult, dsns: Mapping[str, str], files: Mapping[str, str]) -> Iterator[str]:
    numbers = []
    for number, (target, load) in enumerate(phase.loads.items(), 1):
        options = f"PGOPTIONS={quote(READ_ONLY)} " if load.read_only else ""
        arguments = join(_argv(f"{number:03d}", target, load, phase, result, files), _VARIABLES)
        dsn = quote(dsns[target.split("/")[1]])
        numbers.append(number)
        yield f'mkdir -p "$work/{number:03d}"'
        yield f'{options}{arguments} -- {dsn} >"$work/{number:03d}/out" & pid{number}=$!'
    for number in numbers:
        yield f"wait $pid{number}"
    for number, target in zip(numbers, phase.loads, strict=True):
        yield f"{say(target)}; grep '^tps' \"$work/{number:03d}/out\""


def _argv(number: str, target: str, load: Load, phase: Phase, result: TrialResult, files: Mapping[str, str]) -> list[str]:
    """Return the driver's command line until the end of the phase, without the server's address."""
    database = next(database for address, *_, database in result.trial.deployment.databases() if str(address) == target)
    scripts = tuple(script.model_copy(update={"source": files.get(script.source, script.source)}) for script in load.scripts)
    endpoint = Endpoint(target=target, bin=_BIN, host="-", port=1, database="-", user="-", output=f"{_WORK}/{number}", scale=database.scale)
    argv = drivers.driver(load.driver).argv(load.model_copy(update={"scripts": scripts}), endpoint, ceil(phase.warmup + phase.seconds))
    return [*(CHRT_BATCH if load.sched_batch else ()), *argv[:-_ADDRESS]]
