"""Load of the databases from the request: a workload of pgherd or the user's scripts, the size of a database, and the logged fraction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pgherd.host import paths
from pgherd.model.deployment import Database, InitData
from pgherd.model.errors import UsageError
from pgherd.model.load import ClientPlace, Protocol, Script
from pgherd.model.trial import State
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import clones, settings_validation, templates
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.postgres.settings import PRIVATE
from pgherd.prepare.servers import ServerChoice
from pgherd.prepare.workspace import Workspace
from pgherd.study.database_options import READ_ONLY, DatabaseRequest
from pgherd.workloads import bundled_scripts
from pgherd.workloads import user_script as user_scripts
from pgherd.workloads.bundled_scripts import ScriptMix
from pgherd.workloads.registry import find, loaders
from pgherd.workloads.script_parser import runs_programs
from pgherd.workloads.user_script import ScriptLoader, ScriptWorkload

_LINES = 500
"""Maximum log lines per second: per database with ``rate``, or per client that runs the user's scripts."""
_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible fractions of logged transactions. They are few, so that variants of one script usually have the same fraction."""


@dataclass(frozen=True)
class Load:
    """Databases of a run and their load.

    Attributes:
        mix: scripts and defaults of a workload that pgherd provides. None: other workloads.
        workload: name of the workload that fills the database: 'script' for the user's SQL.
        init: SQL file of the user that fills the database, and ``init_data`` the data files that it reads.
        scripts: pgbench scripts. ``user_scripts`` is True if they are from the user.
        read_only: the scripts write nothing. ``assumed`` is True if only the user says so.
        start_state: state in which servers start a trial.
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
    init_data: InitData | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Variables of pgbench for the scripts."""
        return dict(self.mix.variables) if self.mix and not self.init else {}

    def database(self) -> Database:
        """Return a database with the data of this load."""
        return Database(workload=self.workload, scale=self.scale, partitions=self.partitions, init=self.init, init_data=self.init_data)


@dataclass(frozen=True)
class DatabaseSize:
    """Size of one database in bytes.

    ``pace`` is the mean duration (s) of a transaction of the user's scripts, if they were tried. ``messages`` are warnings.
    """

    bytes: int
    pace: float | None = None
    messages: tuple[str, ...] = ()


def choose_load(request: DatabaseRequest, node: Node) -> Load:
    """Return the load of a request.

    Raises:
        UsageError: options contradict each other, or ``--init-script`` or a data file of it cannot be read.
    """
    mix = own_mix(request)
    own = mix if not request.init_script else None
    parsed, read_only, about_scripts = scripts(request, mix)
    if request.dsn is not None and request.read_only:
        user_scripts.require_read_only(node, parsed)
    data, about_data = data_of_init(node, None if request.dsn is not None else request.init_script)
    return Load(
        mix=mix,
        workload="script" if request.init_script else "pgbench" if mix is None else request.workload,
        scale=request.scale or (own.scale if own else 10),
        partitions=partitions(request),
        init=request.init_script,
        scripts=parsed,
        user_scripts=bool(request.script),
        read_only=read_only,
        assumed=request.read_only,
        rate=request.rate,
        protocol=request.protocol,
        client_placement=request.client_placement,
        check_consistency=request.check_consistency,
        start_state=own.state if own and "start_state" not in request.model_fields_set else request.start_state,
        messages=(*about_scripts, *about_data),
        init_data=data,
    )


def on_external(load: Load, external: ExternalDatabaseInfo) -> Load:
    """Return the load for an external server: with the scale of its tables, and clients outside of its container."""
    return replace(load, scale=external.scale or load.scale, client_placement="outside")


def own_mix(request: DatabaseRequest) -> ScriptMix | None:
    """Return the scripts and defaults of a workload that pgherd provides. None: other workloads."""
    return bundled_scripts.mix(request.workload, think=request.think_time, zipf=request.zipf, updates=request.update_percent)


def scripts(request: DatabaseRequest, mix: ScriptMix | None) -> tuple[tuple[Script, ...], bool, list[str]]:
    """Return the scripts that load a database, True if they write nothing, and sentences on chosen defaults.

    ``mix`` is the result of ``own_mix``.

    Raises:
        UsageError: options contradict each other.
    """
    if mix is not None and request.dsn is not None:
        raise UsageError(
            f"--workload {request.workload} does not go with --dsn: it fills a database, and pgherd fills none on an external server; "
            "leave one of them out, or give --script"
        )
    if request.check_consistency and request.workload != "orders":
        raise UsageError(f"--check-consistency is for --workload orders, not for {request.workload}; leave --check-consistency out")
    if request.read_only and (not request.script or request.allow_writes):
        reason = "--allow-writes is its opposite" if request.script else f"pgherd knows whether --workload {request.workload} writes"
        raise UsageError(f"--read-only is for a --script that writes nothing: {reason}; leave one of them out")
    if not request.script:
        if request.init_script:
            raise UsageError("--init-script fills a database for --script; add --script FILE, or leave --init-script out")
        if mix is not None:
            return mix.scripts, mix.read_only, [mix.notice] if mix.notice else []
        return (Script(source=f"builtin:{request.workload}"),), request.workload == "select-only", []
    parsed = tuple(user_scripts.parse_script(text) for text in request.script)
    if request.read_only:
        return parsed, True, [f"Your scripts are assumed to write nothing, and {READ_ONLY} is on for them (--read-only)."]
    return parsed, False, ["Your scripts are assumed to write; give --read-only if they do not."]


def partitions(request: DatabaseRequest) -> int:
    """Return the number of partitions of each database's largest table.

    Raises:
        UsageError: pgherd cannot partition the tables of this workload or of --init-script.
    """
    if request.partitions is not None and (request.init_script is not None or (request.workload == "orders" and not request.script)):
        source = f"--init-script {request.init_script}" if request.init_script is not None else f"--workload {request.workload}"
        raise UsageError(f"--partitions is for the tables of pgbench and random-block, and {source} creates others; leave one of them out")
    return request.partitions or 1


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
        return min(1.0, _LINES / rate)
    usual = 0.05 if read_only else 0.2
    if user_scripts and pace is not None:
        return max([usual, *(share for share in _SHARES if share <= _LINES * pace)])
    return usual


UNKNOWN_SIZE = 256 * 2**20
"""Assumed bytes of a database that is not loaded yet."""
_SIZES = ("shared_buffers", "huge_pages", "huge_page_size")


def database_size(workspace: Workspace, servers: ServerChoice, load: Load) -> DatabaseSize:
    """Return the size of one database.

    A database for the user's scripts is loaded here, and each script runs once on a copy of it. Errors in them are
    therefore reported before the first trial.

    Raises:
        UsageError: the init script or a script fails, or PostgreSQL rejects a setting.
    """
    if servers.external is not None:
        return DatabaseSize(servers.external.bytes)
    estimate = find(load.workload).size_estimate(load.scale)
    if estimate is not None and not load.user_scripts:
        return DatabaseSize(estimate)
    tried = tried_size(workspace, servers, load)
    if tried is not None:
        return tried
    size = estimate or UNKNOWN_SIZE
    return DatabaseSize(
        size, messages=(f"Warning: the database is not loaded yet, so its size is unknown. {format_bytes(size)} is assumed.",)
    )


def tried_size(workspace: Workspace, servers: ServerChoice, load: Load) -> DatabaseSize | None:
    """Create the database's template if it is missing, and try the scripts. Return the template's size.

    A dry run creates nothing and tries nothing. It returns None if the template is missing.

    Raises:
        UsageError: the init script or a script fails, or PostgreSQL rejects a setting.
    """
    node, account, cache, database = workspace.node, workspace.account, str(workspace.cache), load.database()
    for script in load.scripts:
        user_scripts.require_readable(node, script)
    contents = loaders(node, [database])
    template = templates.find(node, servers.usable, contents, cache, servers.checksums)
    if template is None and workspace.dry:
        return None
    sockets = str(Path(paths.socket_root(node, workspace.journal)) / "s")
    node.make_dir(sockets, mode=0o700, user=account)
    if template is None:
        template = templates.ensure(
            node, servers.usable, contents, account=account, cache_dir=cache, socket_dir=sockets, checksums=servers.checksums
        )
    size = sum(template.databases.values())
    if workspace.dry:
        return DatabaseSize(size)
    directory, settings = str(workspace.directory), _settings_of_scripts(workspace, servers)
    with clones.rehearsal(
        node, template, servers.usable, account=account, directory=directory, socket_dir=sockets, settings=settings
    ) as server:
        user_scripts.dry_run(server, database.name, load.scripts, scale=load.scale, protocol=load.protocol, read_only=load.assumed)
        pace = user_scripts.pace(server, database.name, load.scripts, scale=load.scale, protocol=load.protocol, read_only=load.assumed)
    return DatabaseSize(size, pace)


def _settings_of_scripts(workspace: Workspace, servers: ServerChoice) -> dict[str, str]:
    """Return the settings of --set, because a script may need them: a search_path, a library, a custom variable.

    Memory sizes are omitted, because they apply only to the measured servers. Raises UsageError if PostgreSQL rejects a setting.
    """
    settings = {name: value for name, value in servers.requested.by_set.items() if name not in (*PRIVATE, *_SIZES)}
    if settings:
        settings_validation.validate(workspace.node, servers.usable, settings, workspace.account, str(workspace.directory))
    return settings
