"""Load of the databases from the request: a workload of pgherd or the user's scripts, the size of a database, and the logged fraction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from pgherd.model.deployment import Database, InitData
from pgherd.model.errors import UsageError
from pgherd.model.load import ClientPlace, Protocol, Script
from pgherd.model.trial import State
from pgherd.model.units import format_seconds
from pgherd.node.protocol import Node
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.study.database_options import READ_ONLY, BuiltinWorkload, Scheduler
from pgherd.study.objectives import LOG_LINES, rate_sampling
from pgherd.workloads import bundled_scripts
from pgherd.workloads import user_script as user_scripts
from pgherd.workloads.bundled_scripts import ScriptMix
from pgherd.workloads.script_parser import runs_programs
from pgherd.workloads.user_script import ScriptLoader, ScriptWorkload

_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible fractions of logged transactions. They are few, so that variants of one script usually have the same fraction."""


LEAST_TRANSACTIONS = 10
"""Least number of transactions per database that must be due in a trial."""
_LONGEST_GAP_S = 60.0


@dataclass(frozen=True)
class RequestedLoad:
    """Options of databases and their load, as the user gives them.

    Attributes:
        scripts: values of ``--script``.
        init: value of ``--init-script``.
        external: the databases are on an external server.
        duration: measured time of a trial in seconds. None: the study chooses it.
        given: names of all options that the user gives. The others have defaults.
    """

    workload: BuiltinWorkload
    scale: int | None
    partitions: int | None
    scripts: tuple[str, ...]
    init: str | None
    read_only: bool
    allow_writes: bool
    external: bool
    rate: float | None
    protocol: Protocol
    client_placement: ClientPlace
    scheduler: Scheduler
    think_time: float | None
    zipf: float | None
    update_percent: int | None
    check_consistency: bool
    start_state: State
    duration: float | None
    given: frozenset[str]


@dataclass(frozen=True)
class DatabaseLoad:
    """Databases of a run and their load.

    Attributes:
        mix: scripts and defaults of a workload that pgherd provides. None: other workloads.
        workload: name of the workload that fills the database: 'script' for the user's SQL.
        init: SQL file of the user that fills the database, and ``init_data`` the data files that it reads.
        scripts: pgbench scripts. ``user_scripts`` is True if they are from the user.
        read_only: the scripts write nothing. ``assumed`` is True if only the user says so.
        start_state: state in which servers start a trial.
        duration: measured time of a trial in seconds. None: the study chooses it.
        messages: sentences on chosen defaults, and warnings.
    """

    mix: ScriptMix | None
    workload: str
    scale: int
    partitions: int
    init: str | None
    scripts: tuple[Script, ...]
    user_scripts: bool
    read_only: bool
    assumed: bool
    rate: float | None
    protocol: Protocol
    client_placement: ClientPlace
    check_consistency: bool
    start_state: State
    messages: tuple[str, ...]
    duration: float | None = None
    init_data: InitData | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Variables of pgbench for the scripts."""
        return dict(self.mix.variables) if self.mix and not self.init else {}

    def database(self) -> Database:
        """Return a database with the data of this load."""
        return Database(workload=self.workload, scale=self.scale, partitions=self.partitions, init=self.init, init_data=self.init_data)


def choose_load(requested: RequestedLoad, node: Node) -> DatabaseLoad:
    """Return the load that the options describe.

    Raises:
        UsageError: options contradict each other, the rate is too low, or ``--init-script`` or a data file of it cannot be read.
    """
    require_rate(requested.rate, requested.duration)
    mix = own_mix(requested)
    own = mix if not requested.init else None
    parsed, read_only, about_scripts = scripts(requested, mix, node)
    if requested.external:
        user_scripts.require_ending(node, parsed)
    if requested.external and requested.read_only:
        user_scripts.require_read_only(node, parsed)
    data, about_data = data_of_init(node, None if requested.external else requested.init)
    return DatabaseLoad(
        mix=mix,
        workload="script" if requested.init else "pgbench" if mix is None else requested.workload,
        scale=requested.scale or (own.scale if own else 10),
        partitions=partitions(requested),
        init=requested.init,
        scripts=parsed,
        user_scripts=bool(requested.scripts),
        read_only=read_only,
        assumed=requested.read_only,
        rate=requested.rate,
        protocol=requested.protocol,
        client_placement=requested.client_placement,
        check_consistency=requested.check_consistency,
        start_state=own.state if own and "start_state" not in requested.given else requested.start_state,
        messages=(*about_scripts, *about_data),
        duration=requested.duration,
        init_data=data,
    )


def require_rate(rate: float | None, duration: float | None) -> None:
    """Require a rate at which a trial has some transactions.

    At a lower one pgbench ends before its time if no further transaction is due, and does not end at its stop signal until one is due.

    Args:
        rate: transactions per second of a database. None: no limit.
        duration: measured time of a trial in seconds. None: the study chooses it later.

    Raises:
        UsageError: The rate is lower. The message contains the lowest rate.
    """
    if rate is None or duration is None:
        return
    lowest = ceil(100 * LEAST_TRANSACTIONS / min(duration, _LONGEST_GAP_S)) / 100
    if rate < lowest:
        raise UsageError(
            f"--rate {rate:g} is too low: {LEAST_TRANSACTIONS} transactions of a database must be due in "
            f"{duration:g} s (--duration) and in any minute; give --rate {lowest:g} or more"
        )


def require_window(pace: float | None, duration: float | None) -> None:
    """Require a measured time (s) that is not shorter than a transaction of the user's scripts, which takes ``pace`` s with one client.

    Raises:
        UsageError: It is shorter. The message contains a long enough one.
    """
    if pace is not None and duration is not None and pace > duration:
        raise UsageError(
            f"a transaction of the scripts takes {format_seconds(pace)} with one client, longer than the measured time of a trial "
            f"({format_seconds(duration)}); give --duration {ceil(10 * pace)}s or more, or make it shorter"
        )


def on_external(load: DatabaseLoad, external: ExternalDatabaseInfo) -> DatabaseLoad:
    """Return the load for an external server: with the scale of its tables, and clients outside of its container."""
    return replace(load, scale=external.scale or load.scale, client_placement="outside")


def own_mix(requested: RequestedLoad) -> ScriptMix | None:
    """Return the scripts and defaults of a workload that pgherd provides. None: other workloads."""
    return bundled_scripts.mix(requested.workload, think=requested.think_time, zipf=requested.zipf, updates=requested.update_percent)


def scripts(requested: RequestedLoad, mix: ScriptMix | None, node: Node) -> tuple[tuple[Script, ...], bool, list[str]]:
    """Return the scripts that load a database, True if they write nothing, and sentences on chosen defaults.

    ``mix`` is the result of ``own_mix``.

    Raises:
        UsageError: options contradict each other.
    """
    if mix is not None and requested.external:
        raise UsageError(
            f"--workload {requested.workload} does not go with --dsn: it fills a database, and pgherd fills none on an external server; "
            "leave one of them out, or give --script"
        )
    if requested.check_consistency and requested.workload != "orders":
        raise UsageError(f"--check-consistency is for --workload orders, not for {requested.workload}; leave --check-consistency out")
    if requested.read_only and (not requested.scripts or requested.allow_writes):
        reason = "--allow-writes is its opposite" if requested.scripts else f"pgherd knows whether --workload {requested.workload} writes"
        raise UsageError(f"--read-only is for a --script that writes nothing: {reason}; leave one of them out")
    if not requested.scripts:
        if requested.init:
            raise UsageError("--init-script fills a database for --script; add --script FILE, or leave --init-script out")
        if mix is not None:
            return mix.scripts, mix.read_only, [mix.notice] if mix.notice else []
        return (Script(source=f"builtin:{requested.workload}"),), requested.workload == "select-only", []
    parsed = tuple(user_scripts.parse_script(text, node.exists) for text in requested.scripts)
    if requested.read_only:
        return parsed, True, [f"Your scripts are assumed to write nothing, and {READ_ONLY} is on for them (--read-only)."]
    return parsed, False, ["Your scripts are assumed to write; give --read-only if they do not."]


def partitions(requested: RequestedLoad) -> int:
    """Return the number of partitions of each database's largest table.

    Raises:
        UsageError: pgherd cannot partition the tables of this workload or of --init-script.
    """
    if requested.partitions is not None and (requested.init is not None or (requested.workload == "orders" and not requested.scripts)):
        source = f"--init-script {requested.init}" if requested.init is not None else f"--workload {requested.workload}"
        raise UsageError(f"--partitions is for the tables of pgbench and random-block, and {source} creates others; leave one of them out")
    return requested.partitions or 1


def data_of_init(node: Node, init: str | None) -> tuple[InitData | None, list[str]]:
    """Return the data files that --init-script reads, and sentences on changes that cause the database to be loaded again.

    Raises:
        UsageError: --init-script or a data file cannot be read.
    """
    if init is None:
        return None, []
    filling = ScriptWorkload().filling(node, Database(workload="script", init=init))
    assert isinstance(filling, ScriptLoader)
    messages = []
    if filling.data.files:
        messages.append(f"--init-script reads {', '.join(filling.data.files)}: after a change to it, the database is loaded again.")
    if runs_programs(node.read(init).decode(errors="surrogateescape")):
        messages.append(
            "Warning: --init-script runs a program, and pgherd cannot see which files that program reads. "
            "After a change to them, run 'pgherd clean --templates', so that the database is loaded again."
        )
    return filling.data, messages


def sampling(
    scripts: tuple[Script, ...], *, read_only: bool, rate: float | None = None, user_scripts: bool = False, pace: float | None = None
) -> float:
    """Return the fraction of transactions to log.

    A log line costs 1 to 2 µs, and all lines together must cost less than 1 % of the load. All transactions are logged if
    scripts are counted separately by name.

    ``pace`` is the time of a transaction of the user's scripts in seconds. None: not measured. Slow transactions are few,
    so their percentiles require a larger fraction. ``pace`` is measured with one client on a server that was just started and
    does not flush to disk (``tried_size``). It is accurate enough for scripts that only read, but too low for scripts
    that wait for commits. The fraction is never less than that of pgherd's workloads with the same kind of access.
    """
    if any(script.name is not None for script in scripts):
        return 1.0
    if rate is not None:
        return rate_sampling(rate)
    usual = 0.05 if read_only else 0.2
    if user_scripts and pace is not None:
        return max([usual, *(share for share in _SHARES if share <= LOG_LINES * pace)])
    return usual
