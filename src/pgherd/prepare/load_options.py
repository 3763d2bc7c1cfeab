"""Load of the databases from the request: a workload of pgherd or the user's scripts, and the fraction of logged transactions."""

from __future__ import annotations

from pgherd.model.deployment import Database, InitData
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.protocol import Node
from pgherd.study.database_options import READ_ONLY, DatabaseRequest
from pgherd.workloads import script as user_scripts
from pgherd.workloads import shipped
from pgherd.workloads.script import ScriptFilling, ScriptWorkload
from pgherd.workloads.shipped import Mix
from pgherd.workloads.statements import runs_programs

_LINES = 500
"""Maximum log lines per second: per database with ``rate``, or per client that runs the user's scripts."""
_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible fractions of logged transactions. They are few, so that variants of one script usually have the same fraction."""


def own_mix(asked: DatabaseRequest) -> Mix | None:
    """Return the scripts and defaults of a workload that pgherd provides. None: other workloads."""
    return shipped.mix(asked.workload, think=asked.think_time, zipf=asked.zipf, updates=asked.update_percent)


def scripts(asked: DatabaseRequest, mix: Mix | None) -> tuple[tuple[Script, ...], bool, list[str]]:
    """Return the scripts that load a database, True if they write nothing, and sentences on chosen defaults.

    ``mix`` is the result of ``own_mix``.

    Raises:
        UsageError: options contradict each other.
    """
    if mix is not None and asked.dsn is not None:
        raise UsageError(
            f"--workload {asked.workload} does not go with --dsn: it fills a database, and pgherd fills none on an external server; "
            "leave one of them out, or give --script"
        )
    if asked.check_consistency and asked.workload != "orders":
        raise UsageError(f"--check-consistency is for --workload orders, not for {asked.workload}; leave --check-consistency out")
    if asked.read_only and (not asked.script or asked.allow_writes):
        reason = "--allow-writes is its opposite" if asked.script else f"pgherd knows whether --workload {asked.workload} writes"
        raise UsageError(f"--read-only is for a --script that writes nothing: {reason}; leave one of them out")
    if not asked.script:
        if asked.init_script:
            raise UsageError("--init-script fills a database for --script; add --script FILE, or leave --init-script out")
        if mix is not None:
            return mix.scripts, mix.read_only, [mix.notice] if mix.notice else []
        return (Script(source=f"builtin:{asked.workload}"),), asked.workload == "select-only", []
    parsed = tuple(user_scripts.parse_script(text) for text in asked.script)
    if asked.read_only:
        return parsed, True, [f"Your scripts are assumed to write nothing, and {READ_ONLY} is on for them (--read-only)."]
    return parsed, False, ["Your scripts are assumed to write; give --read-only if they do not."]


def partitions(asked: DatabaseRequest) -> int:
    """Return the number of partitions of each database's largest table.

    Raises:
        UsageError: pgherd cannot partition the tables of this workload or of --init-script.
    """
    if asked.partitions is not None and (asked.init_script is not None or (asked.workload == "orders" and not asked.script)):
        source = f"--init-script {asked.init_script}" if asked.init_script is not None else f"--workload {asked.workload}"
        raise UsageError(f"--partitions is for the tables of pgbench and random-block, and {source} creates others; leave one of them out")
    return asked.partitions or 1


def data_of_init(node: Node, asked: DatabaseRequest) -> tuple[InitData | None, list[str]]:
    """Return the data files that --init-script reads, and sentences on changes that cause the database to be loaded again.

    Raises:
        UsageError: --init-script or a data file cannot be read.
    """
    if asked.init_script is None:
        return None, []
    filling = ScriptWorkload().filling(node, Database(workload="script", init=asked.init_script))
    assert isinstance(filling, ScriptFilling)
    messages = []
    if filling.data.files:
        messages.append(f"--init-script reads {', '.join(filling.data.files)}: after a change to it, the database is loaded again.")
    if runs_programs(node.read(asked.init_script).decode(errors="surrogateescape")):
        messages.append(
            "Warning: --init-script runs a program, and pgherd cannot see which files that program reads. "
            "After a change to them, run 'pgherd clean --templates', so that the database is loaded again."
        )
    return filling.data, messages


def sampling(asked: DatabaseRequest, read_only: bool, scripts: tuple[Script, ...], pace: float | None = None) -> float:
    """Return the fraction of transactions to log.

    A log line costs 1 to 2 µs, and all lines together must cost less than 1 % of the load. All transactions are logged if
    scripts are counted separately by name.

    ``pace`` is the time of a transaction of the user's scripts in seconds. None: not measured. Slow transactions are few,
    so their percentiles require a larger fraction. ``pace`` is measured with one client on a server that was just started and
    does not flush to disk (``user_database.loaded``). It is accurate enough for scripts that only read, but too low for scripts
    that wait for commits. The fraction is never less than that of pgherd's workloads with the same kind of access.
    """
    if any(script.name is not None for script in scripts):
        return 1.0
    if asked.rate is not None:
        return min(1.0, _LINES / asked.rate)
    usual = 0.05 if read_only else 0.2
    if asked.script and pace is not None:
        return max([usual, *(share for share in _SHARES if share <= _LINES * pace)])
    return usual
