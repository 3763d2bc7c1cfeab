"""A trial as a shell script that repeats it with nothing but PostgreSQL and pgbench.

The script makes a scratch directory, loads one database, copies it for each server, starts the servers (in control
groups where it may make them), runs the same pgbench command lines at once, prints each one's tps and the sum, and
removes what it made. What pgherd adds beyond that (sampling, verdicts, a common window) is left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from math import ceil
from pathlib import PurePosixPath

from pgherd.drivers import registry as drivers
from pgherd.drivers.driver import Endpoint
from pgherd.model.deployment import Container, Server
from pgherd.model.errors import UsageError
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult

_HEAD = r"""set -eu
BIN=${BIN:-@BIN@}          # PostgreSQL @VERSION@
ACCOUNT=${ACCOUNT:-nobody}  # as root, servers and clients run as this account
work=$(mktemp -d "${TMPDIR:-/tmp}/repeat-XXXXXX")
chmod 711 "$work"
pids=
if [ "$(id -u)" = 0 ]; then
    group=$(id -gn "$ACCOUNT")
    as() { setpriv --reuid="$ACCOUNT" --regid="$group" --clear-groups "$@"; }
    own() { chown "$ACCOUNT" "$@"; }
else
    as() { "$@"; }
    own() { :; }
fi
export LC_ALL=C TZ=UTC

# limit NAME CORES BYTES: make a control group and say which files a process joins ("" where that is not possible).
v1=/sys/fs/cgroup; v2=/sys/fs/cgroup
limit() {
    name=repeat-$(basename "$work")-$1
    if mkdir "$v1/cpu/$name" 2>/dev/null; then
        [ -z "$2" ] || { echo 100000 > "$v1/cpu/$name/cpu.cfs_period_us"; echo "$2" > "$v1/cpu/$name/cpu.cfs_quota_us"; }
        echo "$v1/cpu/$name" >> "$work/groups"
        if [ -n "$3" ] && mkdir "$v1/memory/$name" 2>/dev/null; then
            echo "$3" > "$v1/memory/$name/memory.limit_in_bytes"; echo "$v1/memory/$name" >> "$work/groups"
        fi
    elif [ -e "$v2/cgroup.controllers" ] && mkdir "$v2/$name" 2>/dev/null; then
        echo "$v2/$name" >> "$work/groups"
        { [ -z "$2" ] || echo "$2 100000" > "$v2/$name/cpu.max"; } 2>/dev/null || echo "warning: no CPU quota for $1" >&2
        { [ -z "$3" ] || echo "$3" > "$v2/$name/memory.max"; } 2>/dev/null || echo "warning: no memory limit for $1" >&2
    else
        echo "warning: $1 runs without limits: no control group can be made here" >&2
    fi
}
# inside NAME CPUS COMMAND...: run in the group, on these CPUs ("-": all), dying with this script.
inside() {
    name=repeat-$(basename "$work")-$1; cpus=$2; shift 2
    (
        for file in "$v1/cpu/$name" "$v1/memory/$name" "$v2/$name"; do
            [ ! -e "$file/cgroup.procs" ] || sh -c 'echo "$PPID" > "$1/cgroup.procs"' sh "$file"
        done
        [ "$cpus" = - ] || taskset -pc "$cpus" "$(sh -c 'echo $PPID')" > /dev/null
        if [ "$(id -u)" = 0 ]; then
            exec setpriv --reuid="$ACCOUNT" --regid="$group" --clear-groups "$@"
        fi
        exec "$@"
    )
}
finish() {
    trap - EXIT INT TERM
    for data in "$work"/*/data; do
        [ ! -e "$data/postmaster.pid" ] || as "$BIN/pg_ctl" -D "$data" -m immediate -w stop > /dev/null 2>&1 || true
    done
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    wait
    [ ! -e "$work/groups" ] || while read -r made; do rmdir "$made" || true; done < "$work/groups"
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
# server NAME GROUP CPUS: a copy of the loaded database, with the settings on standard input, started in its group.
server() {
    mkdir -m 700 "$work/$1"; own "$work/$1"
    cp -a --reflink=auto "$work/golden/data" "$work/$1/data"
    cat >> "$work/$1/data/postgresql.conf"
    echo "unix_socket_directories = '$work/$1'" >> "$work/$1/data/postgresql.conf"
    inside "$2" "$3" "$BIN/postgres" -D "$work/$1/data" >> "$work/$1.log" 2>&1 &
    pids="$pids $!"
    tries=0
    until as "$BIN/psql" -h "$work/$1" -U postgres -qXAt -c 'select 1' postgres > /dev/null 2>&1; do
        tries=$((tries + 1)); [ "$tries" -lt 600 ] || { cat "$work/$1.log" >&2; exit 1; }; sleep 0.1
    done
    as "$BIN/psql" -h "$work/$1" -U postgres -qXAt -d "$2db" -c 'select 1' > /dev/null 2>&1 || true
}
"""


def script(result: TrialResult, run: str) -> str:
    """The script for one trial.

    Raises:
        UsageError: the trial needs more than PostgreSQL and pgbench (another runtime, several hosts).
    """
    trial = result.trial
    servers = list(trial.deployment.servers())
    if len(trial.deployment.hosts) != 1 or not servers or any(c.runtime not in ("process", "cgroup") for _, c, _ in servers):
        raise UsageError(f"trial {result.id} cannot be repeated by a plain script: it needs more than this host's own processes")
    first = servers[0][2]
    if any(_content(server) != _content(first) for _, _, server in servers):
        raise UsageError(f"trial {result.id} cannot be repeated by a plain script: its servers do not all hold the same databases")
    lines = [
        "#!/bin/sh",
        f"# Repeats trial {result.id} ({trial.key()}) of run {run} with nothing but PostgreSQL and pgbench.",
        "# Usage: sh SCRIPT; BIN=/path/to/bin and ACCOUNT=name can be set in the environment.",
        _HEAD.replace("@BIN@", shlex.quote(first.bin)).replace("@VERSION@", first.version),
        "# One loaded copy.",
        *_golden(first),
        "",
        f"# {len(servers)} servers.",
    ]
    for container in {c.name: c for _, c, _ in servers}.values():
        lines.append(_limit(container))
    for _, container, server in servers:
        cpus = ",".join(map(str, container.cpus)) if container.cpus else "-"
        lines.append(f"server {container.name}.{server.name} {container.name} {cpus} <<'SETTINGS'")
        lines += [f"{name} = '{_escaped(value)}'" for name, value in sorted(server.settings.items())]
        lines.append("SETTINGS")
        lines += [_prewarm(f"{container.name}.{server.name}", database.name) for database in server.databases]
    for phase in trial.phases:
        lines += ["", *_phase(phase, result)]
    return "\n".join(lines) + "\n"


def _content(server: Server) -> object:
    return server.bin, server.version, server.databases


def _golden(server: Server) -> Iterable[str]:
    yield 'mkdir -m 700 "$work/golden"; own "$work/golden"'
    yield 'as "$BIN/initdb" -D "$work/golden/data" -U postgres -A trust -E UTF8 --locale=C --no-sync > /dev/null'
    yield (
        'as "$BIN/pg_ctl" -D "$work/golden/data" -w -l "$work/golden/log" '
        '-o "-c listen_addresses= -c unix_socket_directories=$work/golden" start > /dev/null'
    )
    yield 'sql() { as "$BIN/psql" -h "$work/golden" -U postgres -qX -v ON_ERROR_STOP=1 -d "$@"; }'
    for database in server.databases:
        name = shlex.quote(database.name)
        yield f"sql postgres -c 'create database {_identifier(database.name)}'"
        yield f"sql {name} -c 'create extension if not exists pg_prewarm' || echo 'warning: no pg_prewarm here' >&2"
        if database.init is not None:
            yield f"sql {name} -f {shlex.quote(database.init)}"
        else:
            yield f'as "$BIN/pgbench" -h "$work/golden" -U postgres -i -q -s {database.scale} {name} > /dev/null 2>&1'
        yield f"sql {name} -c 'vacuum (freeze, analyze)'"
    yield 'as "$BIN/pg_ctl" -D "$work/golden/data" -w -m fast stop > /dev/null'
    yield 'echo "listen_addresses = \'\'" >> "$work/golden/data/postgresql.conf"'


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(value: str) -> str:
    return value.replace("'", "''")


def _limit(container: Container) -> str:
    quota = str(max(1000, round(container.vcpus * 100_000))) if container.vcpus and container.cpu_mode == "quota" else ""
    return f"limit {container.name} '{quota}' '{container.memory or ''}'"


def _prewarm(server: str, database: str) -> str:
    query = "select sum(pg_prewarm(oid)) from pg_class where relkind in ('r', 'i', 'm') and relpersistence = 'p'"
    return (
        f'as "$BIN/psql" -h "$work/{server}" -U postgres -qXAt -d {shlex.quote(database)} -c {shlex.quote(query)} > /dev/null 2>&1 || true'
    )


def _phase(phase: Phase, result: TrialResult) -> Iterable[str]:
    yield f"# Phase '{phase.name}': {phase.ramp:g} s of ramp-up and {phase.seconds:g} s measured; pgherd counts the latter only."
    for target, load in phase.loads.items():
        _, container, server, _ = target.split("/")
        output = f"{container}.{server}"
        yield f'mkdir -m 700 "$work/{output}/out"; own "$work/{output}/out"'
        argv = " ".join(_words(target, load, phase, result))
        inside = _container(result, container)
        cpus = ",".join(map(str, inside.cpus)) if inside.cpus else "-"
        enter = f"inside {container} {cpus}" if load.place == "inside" else "as"
        yield f'{enter} {argv} > "$work/{output}.out" 2> "$work/{output}.err" &'
        yield 'clients="${clients:-} $!"'
    yield 'for pid in $clients; do wait "$pid" || { cat "$work"/*.err >&2; exit 1; }; done; clients='
    yield 'for out in "$work"/*.out; do echo "$(basename "$out" .out): $(sed -n \'s/^tps = \\([0-9.]*\\).*/\\1/p\' "$out") tps"; done'
    yield 'cat "$work"/*.out | awk \'/^tps = / { sum += $3 } END { printf "sum: %.0f tps\\n", sum }\''
    yield 'rm -rf "$work"/*.out "$work"/*.err "$work"/*/out'


def _container(result: TrialResult, name: str) -> Container:
    return next(container for _, container in result.trial.deployment.containers() if container.name == name)


def _words(target: str, load: Load, phase: Phase, result: TrialResult) -> Iterable[str]:
    """The driver's own argv, with this script's variables where pgherd had its directories."""
    _, container, server, database = target.split("/")
    scale = next(d.scale for place, _, _, _, d in result.trial.deployment.databases() if str(place) == target)
    bin_, work = "\0BIN\0", f"\0WORK\0/{container}.{server}"
    endpoint = Endpoint(target, bin_, work, 5432, database, "postgres", f"{work}/out", scale)
    for word in drivers.driver(load.driver).argv(load, endpoint, ceil(phase.ramp + phase.seconds)):
        quoted = shlex.quote(word) if "\0" not in word else '"' + str(PurePosixPath(word)) + '"' if "=" not in word else f'"{word}"'
        yield quoted.replace("\0BIN\0", "$BIN").replace("\0WORK\0", "$work")
