"""What loads the databases, as the user asked: one of pgherd's workloads or scripts of the user's own, and how much of it is logged."""

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
"""Log lines a second: of a database under a rate, of a client whose transactions are the user's own."""
_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Few, so that variants of one script are mostly logged alike."""


def own_mix(asked: DatabaseRequest) -> Mix | None:
    """The workload, where it is one of pgherd's own."""
    return shipped.mix(asked.workload, think=asked.think_time, zipf=asked.zipf, updates=asked.update_percent)


def scripts(asked: DatabaseRequest, own: Mix | None) -> tuple[tuple[Script, ...], bool, list[str]]:
    """The scripts that load a database, whether they write nothing, and sentences on what was chosen. ``own`` is ``own_mix``'s.

    Raises:
        UsageError: options that contradict each other.
    """
    if own is not None and asked.dsn is not None:
        raise UsageError(
            f"--dsn names somebody else's server, and --workload {asked.workload} fills databases of its own; "
            "leave one of them out, or load that server with your own --script"
        )
    if asked.check_consistency and asked.workload != "orders":
        raise UsageError("--check-consistency is for --workload orders only: no other workload has conditions to check")
    if asked.read_only and (not asked.script or asked.allow_writes):
        other = "--allow-writes says the opposite" if asked.script else "which of pgherd's workloads write is known"
        raise UsageError(f"--read-only is for scripts of your own (--script) that write nothing: {other}; leave one of them out")
    if not asked.script:
        if asked.init_script:
            raise UsageError(
                "--init-script fills a database for scripts of your own; give one with --script FILE, or leave --init-script out"
            )
        if own is not None:
            return own.scripts, own.read_only, [own.notice] if own.notice else []
        return (Script(source=f"builtin:{asked.workload}"),), asked.workload == "select-only", []
    found = tuple(user_scripts.parse_script(word) for word in asked.script)
    if asked.read_only:
        return found, True, [f"Your scripts are taken to write nothing, and {READ_ONLY} is on for them (--read-only)."]
    return found, False, ["Your scripts are taken to write; give --read-only if they do not."]


def partitions(asked: DatabaseRequest) -> int:
    """In how many parts the databases' large table is to be made.

    Raises:
        UsageError: the databases have tables that are not ours to part.
    """
    if asked.partitions is not None and (asked.init_script is not None or (asked.workload == "orders" and not asked.script)):
        what = f"--init-script {asked.init_script}" if asked.init_script is not None else f"--workload {asked.workload}"
        raise UsageError(f"--partitions parts the large table of pgbench's workloads and of random-block, and {what} makes other tables")
    return asked.partitions or 1


def data_of_init(node: Node, asked: DatabaseRequest) -> tuple[InitData | None, list[str]]:
    """The data files that --init-script reads, and sentences on what decides whether the database is loaded anew.

    Raises:
        UsageError: --init-script or one of them cannot be read.
    """
    if asked.init_script is None:
        return None, []
    filling = ScriptWorkload().filling(node, Database(workload="script", init=asked.init_script))
    assert isinstance(filling, ScriptFilling)
    said = []
    if filling.data.files:
        said.append(f"--init-script reads {', '.join(filling.data.files)}: when that changes, the database is loaded anew.")
    if runs_programs(node.read(asked.init_script).decode(errors="surrogateescape")):
        said.append(
            "Warning: --init-script runs a program, and pgherd cannot see which files that program reads. "
            "After a change to them, run 'pgherd clean --templates', so that the database is loaded again."
        )
    return filling.data, said


def sampling(asked: DatabaseRequest, read_only: bool, scripts: tuple[Script, ...], pace: float | None = None) -> float:
    """Share of transactions to log: a line costs a microsecond or two, and all must stay below 1 % of the load. All are logged where
    each script's are counted. ``pace``: seconds that a transaction of the user's own takes, if that is known; slow ones are few, and a
    larger share of them is needed for percentiles. It is that of one client on a server that was just started and spares the disk
    (``own_database.loaded``): near enough for a script that only reads, but one that waits for commits is slower for real. No script is
    logged less than pgherd's own that write, or read, as it does."""
    if any(script.name is not None for script in scripts):
        return 1.0
    if asked.rate is not None:
        return min(1.0, _LINES / asked.rate)
    usual = 0.05 if read_only else 0.2
    if asked.script and pace is not None:
        return max([usual, *(share for share in _SHARES if share <= _LINES * pace)])
    return usual
