"""A trial on somebody else's servers as a shell script: nothing is made but a directory for logs, and pgbench alone is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from math import ceil

from pgherd.drivers import registry as drivers
from pgherd.drivers.driver import Endpoint
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.postgres.external import READ_ONLY
from pgherd.report.formatting import clean

_BIN, _WORK = "@BIN@", "@WORK@"
_ADDRESS = 7
"""Words at the end of pgbench's command line that name the server: -h HOST -p PORT -U USER DATABASE."""


def uses_external_servers(result: TrialResult) -> bool:
    """Whether all that the trial loads by pgbench is somebody else's."""
    servers = [server for _, _, server in result.trial.deployment.servers()]
    used = {load.driver for phase in result.trial.phases for load in phase.loads.values()}
    return bool(servers) and all(server.dsn for server in servers) and used == {"pgbench"}


def script(result: TrialResult, record: RunRecord, files: Mapping[str, str]) -> str:
    """The script; ``files`` says where the user's own scripts lie now."""
    servers = {container.name: server for _, container, server in result.trial.deployment.servers()}
    lines = [
        "#!/bin/sh",
        "# " + " ".join(clean(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with pgbench alone.").split()),
        "#",
        "# The servers are somebody else's: nothing is made, set or stopped on them, and they are as they are now, not as they were then.",
        "# Their addresses stand below without passwords: put these into ~/.pgpass or PGPASSWORD.",
        "# In the environment: BIN, where pgbench is.",
        "set -eu",
        f'[ -n "${{BIN:-}}" ] || BIN={shlex.quote(next(iter(servers.values())).bin)}',
        "work=$(mktemp -d)",
        """trap 'rm -rf -- "$work"' EXIT""",
        "trap 'exit 130' INT TERM HUP",
        "",
    ]
    for number, phase in enumerate(result.trial.phases):
        lines.append("# " + clean(f"Phase '{phase.name}': {phase.ramp:g} s of ramp-up and {phase.seconds:g} s that pgherd measured."))
        if number < len(result.phases):
            lines.append(f"# In these it counted {result.phases[number].throughput:.1f} transactions per second in all.")
        lines += _phase(phase, result, {name: str(server.dsn) for name, server in servers.items()}, files)
    return "\n".join(lines) + "\n"


def _phase(phase: Phase, result: TrialResult, dsns: Mapping[str, str], files: Mapping[str, str]) -> Iterator[str]:
    calls = []
    for number, (target, load) in enumerate(phase.loads.items(), 1):
        options = f"PGOPTIONS={shlex.quote(READ_ONLY)} " if load.read_only else ""
        words = " ".join(_quoted(word) for word in _argv(f"{number:03d}", target, load, phase, result, files))
        dsn = shlex.quote(dsns[target.split("/")[1]])
        calls.append(number)
        yield f'mkdir -p "$work/{number:03d}"'
        yield f'{options}{words} {dsn} >"$work/{number:03d}/out" & pid{number}=$!'
    for number in calls:
        yield f"wait $pid{number}"
    for number, target in zip(calls, phase.loads, strict=True):
        yield f"echo {shlex.quote(target)}; grep '^tps' \"$work/{number:03d}/out\""


def _argv(number: str, target: str, load: Load, phase: Phase, result: TrialResult, files: Mapping[str, str]) -> list[str]:
    """The driver's own command line, to the end of the phase, without the server's address."""
    database = next(found for place, *_, found in result.trial.deployment.databases() if str(place) == target)
    scripts = tuple(one.model_copy(update={"source": files.get(one.source, one.source)}) for one in load.scripts)
    endpoint = Endpoint(target=target, bin=_BIN, host="-", port=1, database="-", user="-", output=f"{_WORK}/{number}", scale=database.scale)
    argv = drivers.driver(load.driver).argv(load.model_copy(update={"scripts": scripts}), endpoint, ceil(phase.ramp + phase.seconds))
    return argv[:-_ADDRESS]


def _quoted(word: str) -> str:
    for placeholder, variable in ((_BIN, '"$BIN"'), (_WORK, '"$work"')):
        before, found, after = word.partition(placeholder)
        if found:
            return f"{shlex.quote(before) if before else ''}{variable}{shlex.quote(after) if after else ''}"
    return shlex.quote(word)
