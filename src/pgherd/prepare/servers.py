"""PostgreSQL servers of a request: an external one or pgherd's own, their data checksums, settings and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.host.server_user import require_initdb
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import RuntimeName
from pgherd.model.errors import UsageError
from pgherd.model.fleet import FleetServer, ListedServer
from pgherd.model.load import transaction_timeout
from pgherd.model.prometheus import PrometheusSource
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import (
    clones,
    configuration,
    external_server,
    huge_pages,
    installations,
    instance,
    settings,
    settings_validation,
    templates,
    version_differences,
)
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.postgres.huge_pages import HugePageNeed
from pgherd.postgres.imported_settings import ImportedSettings, import_settings
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import PRIVATE, ChosenSettings, SettingRow
from pgherd.postgres.version_differences import ServerDefaults, VersionDifference
from pgherd.prepare import fleet, server_observation
from pgherd.prepare.guests import GUEST_SYSTEM
from pgherd.prepare.load import DatabaseLoad, RequestedLoad, require_window
from pgherd.prepare.prepared_study import PreparedStudy, Workspace
from pgherd.study.database_options import READ_ONLY
from pgherd.workloads import user_script as user_scripts
from pgherd.workloads.registry import find, loaders

UNCACHED_BUFFERS = 128 * 2**20
"""Bytes of shared buffers if the study requires that they do not hold the database: PostgreSQL's default."""
MEMORY = 256 * 2**20
"""Memory in bytes of drivers and pgherd on this host. Each client needs 1 MB more."""

UNKNOWN_SIZE = 256 * 2**20
"""Assumed bytes of a database that is not loaded yet."""
_SIZES = ("shared_buffers", "huge_pages", "huge_page_size")

_PGBENCH = ("select-only", "tpcb-like", "simple-update")

ONLY_OWN: Mapping[str, str] = {
    "set": "pgherd does not change its settings",
    "settings_from": "pgherd does not change its settings",
    "data_volume": "pgherd does not move its files",
    "wal_volume": "pgherd does not move its files",
    "temp_volume": "pgherd does not move its files",
    "tablespace_volume": "pgherd does not move its files",
    "huge_pages": "pgherd does not change its settings",
    "init_script": "pgherd creates no database on it",
    "partitions": "pgherd creates no table on it",
    "runtime": "its isolation is configured where it runs",
    "memory": "its limits are configured where it runs",
    "cpu_mode": "its limits are configured where it runs",
    "cpu_weight": "its limits are configured where it runs",
    "iops": "its limits are configured where it runs",
    "io_bandwidth": "its limits are configured where it runs",
    "data_checksums": "pgherd did not initialize its cluster",
}
"""Option that applies only to servers that pgherd starts → reason why it is rejected for an external server."""


@dataclass(frozen=True)
class RequestedSettings:
    """Settings that options request.

    Attributes:
        settings: all of them, of which ``by_set`` are those of --set.
        reasons: setting of another option → PostgreSQL's default, and the option.
        rounding: bytes that whole huge pages may take beyond a server's need; 0 if none are reserved for it.
        transparent: transparent huge pages of shared memory (None: setting of the host).
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    by_set: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    rounding: int = 0
    transparent: bool | None = None


@dataclass(frozen=True)
class RequestedServers:
    """Options of PostgreSQL servers, as the user gives them.

    Attributes:
        existing: external servers. Empty: pgherd starts servers.
        prometheus: value of ``--prometheus``, like ``prometheus_match``.
        set: values of ``--set``.
        not_external: names of given options that apply only to servers that pgherd starts.
        vcpus: like ``trace_io`` an option that pgherd ignores for an external server.
    """

    existing: tuple[ListedServer, ...]
    prometheus: str | None
    prometheus_match: str
    pg_bin: str | None
    pg_version: str | None
    set: tuple[str, ...]
    settings_from: str | None
    huge_pages: str | None
    read_only: bool
    data_checksums: bool | None
    not_external: tuple[str, ...]
    vcpus: float | None
    trace_io: bool


@dataclass(frozen=True)
class ServerChoice:
    """PostgreSQL servers of a run.

    Attributes:
        installation: PostgreSQL installation of the servers, and of the clients.
        usable: the installation, or a cached copy if the servers' user cannot execute it.
        external: external server, the first one of several. pgherd chooses only the number of clients and the times for it.
        existing: all external servers with their properties, by their label in messages.
        direct: DSN for samples of the only external server, if it has one.
        cgroup: cgroup of the only external server on this host. None: it is found if that is provable.
        prometheus: Prometheus server with samples of the only external server's host.
        fleet: servers of a list, if the study loads several.
        checksums: the servers have data checksums.
        requested: settings that options request.
        settings_from: configuration file or DSN from which settings are copied.
        writes: the load writes.
        warnings: warnings about others who use the servers. They come first.
        messages: sentences on chosen defaults, and warnings.
    """

    installation: Installation
    usable: Installation
    external: ExternalDatabaseInfo | None = None
    existing: Mapping[str, ExternalDatabaseInfo] = field(default_factory=dict)
    direct: str | None = None
    cgroup: str | None = None
    prometheus: PrometheusSource | None = None
    fleet: tuple[FleetServer, ...] = ()
    checksums: bool = True
    requested: RequestedSettings = field(default_factory=RequestedSettings)
    settings_from: str | None = None
    writes: bool = False
    warnings: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerSettings:
    """Settings of each server, also as rows for a report, the huge pages that PostgreSQL reserves with them, and warnings."""

    settings: dict[str, str]
    rows: tuple[SettingRow, ...] = ()
    huge_pages: HugePageNeed | None = None
    messages: tuple[str, ...] = ()

    def changed(self, row: SettingRow) -> ServerSettings:
        """Return the settings with one more, or with another value of one."""
        return replace(self, settings={**self.settings, row.name: row.value}, rows=(*self.rows, row))


@dataclass(frozen=True)
class DatabaseSize:
    """Size of one database in bytes.

    ``pace`` is the mean duration (s) of a transaction of the user's scripts, if they were tried. ``messages`` are warnings.
    """

    bytes: int
    pace: float | None = None
    messages: tuple[str, ...] = ()


def choose_servers(requested: RequestedServers, load: RequestedLoad, workspace: Workspace, *, writes: bool) -> ServerChoice:
    """Return the servers that the options describe: pgherd's own, or the external one. ``writes`` is True if the load writes.

    Raises:
        UsageError: there is no such installation, two options set the same parameter, or the external server rejects the load.
        CapabilityError: this kernel has no huge pages, but a server would require them, or initdb does not know the user.
    """
    existing: dict[str, ExternalDatabaseInfo] = {}
    for server in requested.existing:
        label = f"server {server.name}" if server.name else "--dsn"
        info = find_external(workspace.node, server.dsn, requested.not_external, load, read_only=not writes, label=label)
        existing[label] = replace(info, direct=server.direct is not None)
    external, only = next(iter(existing.values()), None), requested.existing[0] if len(existing) == 1 else None
    sources: tuple[PrometheusSource | None, ...] = ()
    several: tuple[FleetServer, ...] = ()
    installation = installations.choose(workspace.node, requested.pg_bin, requested.pg_version)
    if external is None:
        if requested.prometheus is not None:
            raise UsageError("--prometheus is for existing servers; add --dsn or --servers, or leave --prometheus out")
        require_initdb(workspace.account)
        messages = describe_checksums(requested.data_checksums, installation.major)
    else:
        messages = describe_external(*existing.values(), read_only=not writes, vcpus=requested.vcpus, trace_io=requested.trace_io)
        looked = list(zip(requested.existing, existing.values(), strict=True))
        messages += server_observation.describe_facts(looked)
        if requested.prometheus is None:
            sources = (None,) * len(looked)
            messages += server_observation.describe_cgroups(workspace.node, looked)
        else:
            url, match = requested.prometheus, requested.prometheus_match
            sources = tuple(server_observation.prometheus_source(url, match, server, info) for server, info in looked)
            messages += server_observation.describe_prometheus(looked, sources)
        if only is None:
            several = tuple(fleet.found(server, info, source) for (server, info), source in zip(looked, sources, strict=True))
            messages += fleet.describe_differences(several)
    return ServerChoice(
        installation=installation,
        usable=installations.reachable_copy(workspace.node, installation, workspace.account, str(workspace.cache)),
        external=external,
        existing=existing,
        direct=None if only is None else only.direct,
        cgroup=None if only is None or sources[0] is not None else only.container,
        prometheus=None if only is None else sources[0],
        fleet=several,
        checksums=with_checksums(requested.data_checksums),
        requested=requested_settings(workspace.node, requested),
        settings_from=requested.settings_from,
        writes=writes,
        warnings=tuple(warning for label, info in existing.items() for warning in fleet.warn_of_use(label, info)),
        messages=tuple(messages),
    )


def requested_settings(node: Node, requested: RequestedServers) -> RequestedSettings:
    """Return the settings requested by --set, --huge-pages and --read-only.

    Raises:
        UsageError: two options set the same parameter, or one is invalid.
        CapabilityError: this kernel has no huge pages, but a server would require them.
    """
    by_option = settings_of_options(requested.set, requested.huge_pages, requested.read_only)
    return RequestedSettings(
        settings=by_option,
        by_set=configuration.parse_set(requested.set),
        reasons=option_reasons(requested.huge_pages, requested.read_only),
        rounding=rounding(node, by_option),
        transparent=huge_pages.transparent_for(requested.huge_pages),
    )


def settings_of_options(assignments: tuple[str, ...], pages: str | None, read_only: bool) -> dict[str, str]:
    """Return the settings requested by --set (``assignments``), --huge-pages (``pages``) and --read-only.

    Raises:
        UsageError: two options set the same parameter, or one is invalid.
    """
    by_name = configuration.parse_set(assignments)
    if read_only:
        by_name[READ_ONLY] = "on"
    if pages is None:
        return by_name
    by_size = huge_pages.settings_for(pages)
    for name in ("huge_pages", "huge_page_size"):
        if name in by_name:
            raise UsageError(f"--set {name}={by_name[name]} and --huge-pages {pages} set the same parameter; give only one of them")
    return {**by_name, **by_size}


def option_reasons(pages: str | None, read_only: bool) -> dict[str, tuple[str, str]]:
    """Return the settings of --huge-pages (``pages``) and --read-only: name → PostgreSQL's default, and the option."""
    by_option: dict[str, tuple[str, str]] = {}
    if pages is not None:
        by_option |= {name: (default, "--huge-pages") for name, default in (("huge_pages", "try"), ("huge_page_size", "0"))}
    if read_only:
        by_option[READ_ONLY] = ("off", "--read-only")
    return by_option


def rounding(node: Node, settings: Mapping[str, str]) -> int:
    """Return the bytes that whole pages may take beyond a server's need; 0 if none are reserved for it."""
    return huge_pages.page_size(node, settings) if huge_pages.requires_huge_pages(settings) else 0


def explained(selected: ChosenSettings, by_option: Mapping[str, tuple[str, str]]) -> ChosenSettings:
    """Return the choice with reasons for settings of options. ``by_option`` is the result of ``option_reasons``."""
    rows = [
        replace(row, default=by_option[row.name][0], why=f"asked for with {by_option[row.name][1]}") if row.name in by_option else row
        for row in selected.rows
    ]
    return replace(selected, rows=tuple(rows))


def require_own(external: ExternalDatabaseInfo | None, why: str) -> None:
    """Require that pgherd starts the servers. Raises UsageError with the reason ``why`` if there is an external server."""
    if external is not None:
        raise UsageError(f"server {external.dsn} does not go with this: {why}")


def database_size(workspace: Workspace, servers: ServerChoice, load: DatabaseLoad) -> DatabaseSize:
    """Return the size of one database.

    A database for the user's scripts is loaded here, and each script runs once on a copy of it. Errors in them are
    therefore reported before the first trial.

    Raises:
        UsageError: the init script or a script fails, or PostgreSQL rejects a setting.
    """
    if servers.external is not None:
        return DatabaseSize(max(info.bytes for info in servers.existing.values()))
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


def tried_size(workspace: Workspace, servers: ServerChoice, load: DatabaseLoad) -> DatabaseSize | None:
    """Create the database's template if it is missing, and try the scripts. Return the template's size.

    A dry run creates nothing and tries nothing. It returns None if the template is missing.

    Raises:
        UsageError: the init script or a script fails, or PostgreSQL rejects a setting.
    """
    node, account, cache, database = workspace.node, workspace.account, str(workspace.cache), load.database()
    for script in load.scripts:
        user_scripts.require_readable(node, script)
    settings = _settings_of_scripts(workspace, servers)
    contents = loaders(node, [database], settings)
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
    with clones.rehearsal(
        node, template, servers.usable, account=account, directory=str(workspace.directory), socket_dir=sockets, settings=settings
    ) as server:
        timeout = transaction_timeout(load.duration or 0.0)
        user_scripts.dry_run(
            server, database.name, load.scripts, scale=load.scale, protocol=load.protocol, timeout=timeout, read_only=load.assumed
        )
        pace = user_scripts.pace(
            server, database.name, load.scripts, scale=load.scale, protocol=load.protocol, timeout=timeout, read_only=load.assumed
        )
    require_window(pace, load.duration)
    return DatabaseSize(size, pace)


def _settings_of_scripts(workspace: Workspace, servers: ServerChoice) -> dict[str, str]:
    """Return the settings of --set, because a script may need them: a search_path, a library, a custom variable.

    Those under which an SQL file is loaded are also taken from --settings-from. Memory sizes are omitted, because they apply only to the
    measured servers. Raises UsageError if PostgreSQL rejects a setting.
    """
    node, usable, account, directory = workspace.node, servers.usable, workspace.account, str(workspace.directory)
    copied = import_settings(node, servers.settings_from, usable, account, directory).settings if servers.settings_from else {}
    by_set = {name: value for name, value in servers.requested.by_set.items() if name not in (*PRIVATE, *_SIZES)}
    settings = {**user_scripts.loading_settings(copied), **by_set}
    if settings:
        settings.setdefault("max_wal_senders", "0")  # with more, PostgreSQL refuses a wal_level of minimal
        settings_validation.validate(node, usable, settings, account, directory)
    return settings


def memory_needed(servers: ServerChoice, runtime: RuntimeName, database_bytes: int, clients: int, *, cached: bool = True) -> int:
    """Return the memory that one server needs in its container, in bytes. With ``cached``, shared buffers hold the database."""
    if servers.external is not None:
        return MEMORY + clients * 2**20
    buffers = settings.buffers_for(database_bytes, servers.writes) if cached else UNCACHED_BUFFERS
    system = GUEST_SYSTEM if capabilities_of(runtime).own_kernel else 0
    return settings.memory_needed(buffers, clients) + servers.requested.rounding + system


def choose_settings(
    workspace: Workspace, servers: ServerChoice, database_bytes: int, clients: int, memory: int | None, *, cached: bool = True
) -> ServerSettings:
    """Return the servers' settings. Requested settings override --settings-from, which overrides the study's settings.

    ``memory`` is the memory limit of a container in bytes, if it has one. ``cached`` is that of ``memory_needed``.

    Raises:
        UsageError: PostgreSQL rejects a setting, or a setting contradicts the load.
        CapabilityError: this kernel or this PostgreSQL does not support huge pages.
    """
    if servers.external is not None:
        return ServerSettings({})
    node, usable, account, directory = workspace.node, servers.usable, workspace.account, str(workspace.directory)
    copied = import_settings(node, servers.settings_from, usable, account, directory) if servers.settings_from else ImportedSettings({})
    choice = settings.choose_settings(
        major=servers.installation.major,
        database_bytes=database_bytes,
        clients=clients,
        memory=memory,
        writes=servers.writes,
        cached=cached,
        like=copied.settings,
        asked=dict(servers.requested.settings),
    )
    choice = explained(choice, servers.requested.reasons)
    messages = [f"Left out of --settings-from: {dropped.name} ({dropped.why})." for dropped in copied.dropped]
    messages += [f"Warning: {warning}." for warning in (*copied.warnings, *choice.warnings)]
    settings_validation.validate(node, usable, choice.settings, account, directory)
    need = None
    if huge_pages.requires_huge_pages(choice.settings):
        cluster = settings_validation.configured(node, usable, choice.settings, account, directory)
        need = huge_pages.needed(node, usable, choice.settings, cluster, account)
    return ServerSettings(choice.settings, choice.rows, need, tuple(messages))


def find_external(
    node: Node, dsn: str, not_external: tuple[str, ...], load: RequestedLoad, *, read_only: bool, label: str = "--dsn"
) -> ExternalDatabaseInfo:
    """Connect to the server at ``dsn`` and return its properties. ``read_only``: the load does not write.

    ``not_external`` are the names of given options that do not apply to it. ``label`` names the server in messages.

    Raises:
        UsageError: an option does not apply to an external server, or the load cannot run on it.
    """
    name = external_server.normalize_dsn(dsn, label)
    option_of = "--dsn" if label == "--dsn" else "--servers"
    for option in not_external:
        given = f"--{option.replace('_', '-')}"
        raise UsageError(f"{given} does not go with {option_of}: {name} is external, and {ONLY_OWN[option]}; leave one out")
    if load.start_state != "warm":
        raise UsageError(
            f"--start-state {load.start_state} does not go with {option_of}: pgherd neither restarts nor restores an external server; "
            "leave --start-state out"
        )
    if load.scheduler in ("batch", "batch-servers"):
        raise UsageError(
            f"--scheduler {load.scheduler} does not go with {option_of}: {name} is external, and its scheduling policy is configured where "
            "it runs (systemd: CPUSchedulingPolicy=batch); use --scheduler batch-clients for pgbench alone"
        )
    if "client_placement" in load.given and load.client_placement == "inside":
        raise UsageError(
            f"--client-placement inside does not go with {option_of}: pgbench runs on this host, outside the server's container; "
            "leave --client-placement out"
        )
    if not load.scripts and load.workload not in _PGBENCH:
        raise UsageError(
            f"--workload {load.workload} does not go with {option_of}: it requires its tables, and pgherd creates none on an external "
            f"server; use {', '.join(_PGBENCH)}, or --script"
        )
    if not read_only and not load.allow_writes:
        writing = "--script is assumed to write" if load.scripts else f"--workload {load.workload} writes"
        raise UsageError(
            f"{label} {name} is read only by default, and {writing}; use --workload select-only, or add --allow-writes if this database "
            "may be changed"
        )
    server = external_server.read_database_info(name, writes=not read_only, option=label, node=node)
    if server.pooler is not None and server.pooler.shared and load.protocol == "prepared":
        raise UsageError(
            f"--protocol prepared does not go with {label} {name}: {server.pooler.name} shares sessions between clients, where prepared "
            "statements stay behind; use --protocol simple or --protocol extended, or name the server itself"
        )
    if server.pooler is not None and server.pooler.shared:
        parsed = [user_scripts.parse_script(script, node.exists) for script in load.scripts]
        user_scripts.require_no_session_state(node, parsed, server.pooler.name)
    external_server.require_reachable(server, builtin=not load.scripts, writes=not read_only, scale=load.scale, option=label)
    return server


def describe_external(*servers: ExternalDatabaseInfo, read_only: bool, vcpus: float | None, trace_io: bool) -> list[str]:
    """Return the report's sentences and warnings about the servers."""
    messages, (their, them) = [], ("Its", "it") if len(servers) == 1 else ("Their", "them")
    for found in servers:
        scale = "" if found.scale is None else f", pgbench's tables of scale {found.scale}"
        size = format_bytes(found.bytes)
        messages.append(f"Server {found.dsn}: PostgreSQL {found.version}; database '{found.database}' of {size}{scale}.")
    if read_only:
        messages += dict.fromkeys(f"{their} data are only read: {_why_only_read(found)}." for found in servers)
    else:
        messages.append(f"Transactions write to {them} (--allow-writes). Their changes are not undone.")
    messages += dict.fromkeys(
        f"Warning: --query-timeout does not apply behind {found.pooler.name}, which drops it; set statement_timeout for the user."
        for found in servers
        if found.pooler is not None
    )
    if vcpus is not None:
        messages.append(f"Warning: --vcpus {vcpus:g} does not apply to an external server and is ignored.")
    if trace_io:
        messages.append("Warning: --trace-io cannot trace an external server: its block requests are not traced.")
    return messages


def _why_only_read(found: ExternalDatabaseInfo) -> str:
    if found.pooler is None:
        return "every session starts with default_transaction_read_only=on, and one was tried"
    return f"default_transaction_read_only is on for all sessions of this user behind {found.pooler.name}, and several were tried"


def with_checksums(requested: bool | None) -> bool:
    """Return True if the servers use data checksums. The same default for all versions makes them comparable."""
    return True if requested is None else requested


def describe_checksums(requested: bool | None, major: int) -> list[str]:
    """Return a message if the choice differs from the default of initdb in this ``major`` version."""
    default, chosen = instance.checksums_default(major), with_checksums(requested)
    if chosen == default:
        return []
    reason = "as requested" if requested is not None else "the same for all versions, as PostgreSQL 18 and later by default"
    state = {True: "on", False: "off"}
    return [f"Data checksums {state[chosen]}: {reason}. The default of PostgreSQL {major} is {state[default]}."]


def differing_defaults(node: Node, prepared: Mapping[str, PreparedStudy]) -> dict[str, dict[str, str]]:
    """Return the defaults that differ between the installations of variants: name → variant → value.

    The result is empty if a variant uses an external server. Raises as ``differences``.
    """
    variants = list(prepared)
    first, options = prepared[variants[0]], [study.options for study in prepared.values()]
    installed = {variant: study.installation for variant, study in prepared.items() if study.installation is not None}
    if len(installed) < len(variants) or any(
        getattr(study_options, "external", False) or not hasattr(study_options, "settings") for study_options in options
    ):
        return {}
    by_variant = differences(
        node,
        installed[variants[0]],
        {variant: installed[variant] for variant in variants[1:]},
        account=first.environment.run_as,
        checksums=getattr(options[0], "data_checksums", None),
        settings={setting for study_options in options for setting in getattr(study_options, "settings", {})},
    )
    rows: dict[str, dict[str, str]] = {}
    for variant, differing in by_variant.items():
        for row in differing:
            rows.setdefault(row.name, dict.fromkeys(variants, row.one))[variant] = row.other
    return rows


def describe_defaults(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Describe these differences in a message. Return an empty list if there are none."""
    texts = [f"{name} is {', '.join(f'{value} in {variant}' for variant, value in values.items())}" for name, values in found.items()]
    return [f"Defaults that differ between versions: {'; '.join(texts)}."] if texts else []


def differences(
    node: Node,
    baseline: Installation,
    others: Mapping[str, Installation],
    *,
    account: str | None,
    checksums: bool | None = None,
    settings: Iterable[str] = (),
) -> dict[str, tuple[VersionDifference, ...]]:
    """Return the defaults in which each of ``others`` (by name) differs from the baseline. None differ for the same installation.

    ``account`` is the operating system user of the servers. ``checksums`` is the choice for their data directories. ``settings`` are
    names that the run sets, so their defaults are ignored. Each distinct installation takes about 2 s. All files are removed.

    Raises:
        CapabilityError: the user cannot run an installation.
        TrialError: a server does not start.
    """
    if all(other.bin == baseline.bin for other in others.values()):
        return dict.fromkeys(others, ())
    names = tuple(settings)
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        work = paths.work_tree(node, journal, "prepare", account)
        sockets = Path(paths.socket_root(node, journal)) / "s"
        node.make_dir(str(sockets), mode=0o700, user=account)
        by_directory: dict[str, ServerDefaults] = {}
        for installation in (baseline, *others.values()):
            if installation.bin not in by_directory:
                usable = installations.reachable_copy(node, installation, account, str(paths.cache_dir()))
                by_directory[installation.bin] = version_differences.read_from_server(
                    node, usable, account=account, directory=str(work), socket_dir=str(sockets), checksums=checksums
                )
        return {
            name: version_differences.differing(by_directory[baseline.bin], by_directory[other.bin], names)
            for name, other in others.items()
        }
    finally:
        journal.close()
