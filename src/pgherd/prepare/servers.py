"""PostgreSQL servers of a request: an external one or pgherd's own, their data checksums, settings and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import RuntimeName
from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import external_server, huge_pages, installations, instance, settings, settings_validation, version_differences
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.postgres.huge_pages import HugePageNeed
from pgherd.postgres.imported_settings import ImportedSettings, import_settings
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import SettingRow
from pgherd.postgres.version_differences import ServerDefaults, VersionDifference
from pgherd.prepare.guests import GUEST_SYSTEM
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.workspace import Workspace
from pgherd.runner.deploy import huge_pages as deploy_huge_pages
from pgherd.runner.deploy.huge_pages import RequestedSettings
from pgherd.study.database_options import DatabaseRequest

UNCACHED_BUFFERS = 128 * 2**20
"""Bytes of shared buffers if the study requires that they do not hold the database: PostgreSQL's default."""
MEMORY = 256 * 2**20
"""Memory in bytes of drivers and pgherd on this host. Each client needs 1 MB more."""

_PGBENCH = ("select-only", "tpcb-like", "simple-update")

_REJECTED: Mapping[str, str] = {
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
    "data_checksums": "pgherd did not initialize its cluster",
}
"""Option that applies only to servers that pgherd starts → reason why it is rejected for an external server."""


@dataclass(frozen=True)
class ServerChoice:
    """PostgreSQL servers of a run.

    Attributes:
        installation: PostgreSQL installation of the servers, and of the clients.
        usable: the installation, or a cached copy if the servers' user cannot execute it.
        external: external server at ``--dsn``. pgherd chooses only the number of clients and the times for it.
        checksums: the servers have data checksums.
        requested: settings that options request.
        settings_from: configuration file or DSN from which settings are copied.
        writes: the load writes.
        messages: sentences on chosen defaults, and warnings.
    """

    installation: Installation
    usable: Installation
    external: ExternalDatabaseInfo | None = None
    checksums: bool = True
    requested: RequestedSettings = field(default_factory=RequestedSettings)
    settings_from: str | None = None
    writes: bool = False
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerSettings:
    """Settings of each server, also as rows for a report, the huge pages that PostgreSQL reserves with them, and warnings."""

    settings: dict[str, str]
    rows: tuple[SettingRow, ...] = ()
    huge_pages: HugePageNeed | None = None
    messages: tuple[str, ...] = ()


def choose_servers(request: DatabaseRequest, workspace: Workspace, *, writes: bool) -> ServerChoice:
    """Return the servers of a request: pgherd's own, or the external one. ``writes`` is True if the load writes.

    Raises:
        UsageError: there is no such installation, two options set the same parameter, or the external server rejects the load.
        CapabilityError: this kernel has no huge pages, but a server would require them.
    """
    external = None if request.dsn is None else find_external(request, read_only=not writes)
    installation = installations.choose(workspace.node, request.pg_bin, request.pg_version)
    if external is None:
        messages = describe_checksums(request.data_checksums, installation.major)
    else:
        messages = describe_external(external, read_only=not writes, vcpus=request.vcpus, trace_io=request.trace_io)
    return ServerChoice(
        installation=installation,
        usable=installations.reachable_copy(workspace.node, installation, workspace.account, str(workspace.cache)),
        external=external,
        checksums=with_checksums(request.data_checksums),
        requested=deploy_huge_pages.requested_settings(workspace.node, request),
        settings_from=request.settings_from,
        writes=writes,
        messages=tuple(messages),
    )


def require_own(external: ExternalDatabaseInfo | None, why: str) -> None:
    """Require that pgherd starts the servers. Raises UsageError with the reason ``why`` if there is an external server."""
    if external is not None:
        raise UsageError(f"--dsn {external.dsn} does not go with this: {why}")


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
    choice = deploy_huge_pages.explained(choice, servers.requested.reasons)
    messages = [f"Left out of --settings-from: {dropped.name} ({dropped.why})." for dropped in copied.dropped]
    messages += [f"Warning: {warning}." for warning in (*copied.warnings, *choice.warnings)]
    settings_validation.validate(node, usable, choice.settings, account, directory)
    need = None
    if huge_pages.requires_huge_pages(choice.settings):
        cluster = settings_validation.configured(node, usable, choice.settings, account, directory)
        need = huge_pages.needed(node, usable, choice.settings, cluster, account)
    return ServerSettings(choice.settings, choice.rows, need, tuple(messages))


def find_external(request: DatabaseRequest, *, read_only: bool) -> ExternalDatabaseInfo:
    """Connect to the server of a request and return its properties. ``read_only``: the load does not write.

    Raises:
        UsageError: an option does not apply to an external server, or the load cannot run on it.
    """
    assert request.dsn is not None
    name = external_server.normalize_dsn(request.dsn)
    for option, reason in _REJECTED.items():
        if getattr(request, option, None) not in (None, ()):
            raise UsageError(f"--{option.replace('_', '-')} does not go with --dsn: {name} is external, and {reason}; leave one out")
    if request.start_state != "warm":
        raise UsageError(
            f"--start-state {request.start_state} does not go with --dsn: pgherd neither restarts nor restores an external server; "
            "leave --start-state out"
        )
    if request.scheduler in ("batch", "batch-servers"):
        raise UsageError(
            f"--scheduler {request.scheduler} does not go with --dsn: {name} is external, and its scheduling policy is configured where it "
            "runs (systemd: CPUSchedulingPolicy=batch); use --scheduler batch-clients for pgbench alone"
        )
    if "client_placement" in request.model_fields_set and request.client_placement == "inside":
        raise UsageError(
            "--client-placement inside does not go with --dsn: pgbench runs on this host, outside the server's container; "
            "leave --client-placement out"
        )
    if not request.script and request.workload not in _PGBENCH:
        raise UsageError(
            f"--workload {request.workload} does not go with --dsn: it requires its tables, and pgherd creates none on an external server; "
            f"use {', '.join(_PGBENCH)}, or --script"
        )
    if not read_only and not request.allow_writes:
        load = "--script is assumed to write" if request.script else f"--workload {request.workload} writes"
        raise UsageError(
            f"--dsn {name} is read only by default, and {load}; use --workload select-only, or add --allow-writes if this database may "
            "be changed"
        )
    server = external_server.read_database_info(name, writes=not read_only)
    if server.pooler is not None and server.pooler.shared and request.protocol == "prepared":
        raise UsageError(
            f"--protocol prepared does not go with --dsn {name}: {server.pooler.name} shares sessions between clients, where prepared "
            "statements stay behind; use --protocol simple or --protocol extended, or name the server itself"
        )
    external_server.require_reachable(server, builtin=not request.script, writes=not read_only, scale=request.scale)
    return server


def describe_external(found: ExternalDatabaseInfo, *, read_only: bool, vcpus: float | None, trace_io: bool) -> list[str]:
    """Return the report's sentences and warnings about the server."""
    scale = "" if found.scale is None else f", pgbench's tables of scale {found.scale}"
    messages = [
        f"Server {found.dsn}: PostgreSQL {found.version}; database '{found.database}' of {format_bytes(found.bytes)}{scale}.",
        f"Its data are only read: {_why_only_read(found)}."
        if read_only
        else "Transactions write to it (--allow-writes). Their changes are not undone.",
        "Its CPU, memory and disks cannot be observed from this host: checks of them are unknown.",
    ]
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
        getattr(study_options, "dsn", None) is not None or not hasattr(study_options, "settings") for study_options in options
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
