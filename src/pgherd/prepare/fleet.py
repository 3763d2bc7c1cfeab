"""Existing servers that a request names: one by its DSN, or those of a list in a YAML file.

The file has one entry for each server::

    servers:
      - name: alpha
        dsn: host=db1 user=bench dbname=bench    # or service: NAME
        direct: host=db2 user=bench dbname=bench # for samples, if dsn leads to a pooler
        labels: {host: rack1}
        container: container:7f2c1d0e9b8a        # or /PATH or pid:N: its cgroup
        capacity: 4
        price: 120
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pgherd.model.errors import UsageError
from pgherd.model.fleet import HOST_LABEL, FleetServer, ListedServer
from pgherd.model.prometheus import PrometheusSource
from pgherd.postgres.external_server import ExternalDatabaseInfo, answering_sessions, normalize_dsn
from pgherd.prepare.requests import first_fault, read_yaml

PGHERD_CONNECTIONS = 2
"""Connections that pgherd itself keeps to a server during a trial: for samples, and for single statements."""


def requested_servers(
    dsns: Sequence[str], file: str | None, name: str | None, *, several: bool, cgroup: str | None = None
) -> tuple[ListedServer, ...]:
    """Return the existing servers that ``--dsn``, ``--servers`` and ``--server`` name. None: pgherd starts servers.

    ``several``: the study loads more than one. The server of a single ``--dsn`` has no name, and ``cgroup`` (``--server-cgroup``) as its
    container. Those of several are named server1, server2 and so on.

    Raises:
        UsageError: options contradict each other, the file is invalid, or the study loads one server and several are named.
    """
    if file is None:
        if name is not None:
            raise UsageError(f"--server {name} names a server of a list; give the list with --servers FILE")
        return _servers_of(dsns, several, cgroup)
    if dsns:
        raise UsageError(f"--dsn and --servers {file} both name servers; leave one out")
    if cgroup is not None:
        raise UsageError(f"--server-cgroup {cgroup} does not go with --servers {file}: name each server's cgroup there, as its 'container'")
    listed = read_servers(Path(file))
    names = ", ".join(server.name for server in listed)
    if name is not None:
        chosen = [server for server in listed if server.name == name]
        if not chosen:
            raise UsageError(f"--server {name} is not in {file}, which lists {names}; name one of these")
        return tuple(chosen)
    if len(listed) > 1 and not several:
        raise UsageError(f"--servers {file} lists {len(listed)} servers, but this loads one; choose it with --server NAME: {names}")
    return listed


def _servers_of(dsns: Sequence[str], several: bool, cgroup: str | None) -> tuple[ListedServer, ...]:
    if cgroup is not None and len(dsns) != 1:
        given = "add its --dsn" if not dsns else f"{len(dsns)} are given; list them in a file for --servers, each with its 'container'"
        raise UsageError(f"--server-cgroup is for one external server; {given}, or leave --server-cgroup out")
    if len(dsns) < 2:
        return tuple(ListedServer.model_construct(name="", dsn=normalize_dsn(dsn), container=cgroup) for dsn in dsns)
    if not several:
        raise UsageError(f"--dsn is given {len(dsns)} times, but this loads one server; give it once")
    servers = tuple(ListedServer(name=f"server{number}", dsn=normalize_dsn(dsn)) for number, dsn in enumerate(dsns, 1))
    _require_different("--dsn", servers)
    return servers


def read_servers(path: Path) -> tuple[ListedServer, ...]:
    """Read a list of servers. Passwords in it are kept in this process only.

    Raises:
        UsageError: the file cannot be read, or an entry is invalid. The message names the server and contains no password.
    """
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise UsageError(f"{path}: a list of servers is a mapping with 'servers', but this is a {type(document).__name__}")
    entries = document.pop("servers", None)
    if document:
        raise UsageError(f"{path}: '{next(iter(document))}' is not known; a list of servers has only 'servers'")
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path}: 'servers' is a list with at least one server, but it is {type(entries).__name__}")
    servers = tuple(_server(path, number, entry) for number, entry in enumerate(entries, 1))
    _require_different(str(path), servers)
    return servers


def _require_different(source: str, servers: Sequence[ListedServer]) -> None:
    for what, values in (("name", [server.name for server in servers]), ("DSN", [server.dsn for server in servers])):
        for index, value in enumerate(values):
            if value in values[:index]:
                first = servers[values.index(value)].name
                raise UsageError(f"{source}: server '{servers[index].name}' has the {what} of server '{first}' ({value}); change one")


def _server(path: Path, number: int, entry: Any) -> ListedServer:
    name = entry.get("name") if isinstance(entry, dict) else None
    label = f"{path}: server '{name}'" if isinstance(name, str) and name else f"{path}: server number {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{label} is a mapping with 'name' and 'dsn', but it is {type(entry).__name__}")
    try:
        server = ListedServer.model_validate(entry)
    except ValidationError as error:
        raise UsageError(f"{label}: {first_fault(error)}") from None
    if bool(server.dsn.strip()) == bool(server.service):  # an empty DSN would lead to libpq's default server
        given = "both are given" if server.service else "none is given"
        raise UsageError(f"{label} has either 'dsn' or 'service', but {given}")
    if server.direct is not None and not server.direct.strip():
        raise UsageError(f"{label}: 'direct' is empty; give a DSN, or remove it")
    direct = None if server.direct is None else normalize_dsn(server.direct, f"{label}: direct")
    return server.model_copy(update={"dsn": normalize_dsn(server.dsn.strip() or f"service={server.service}", label), "direct": direct})


def found(server: ListedServer, info: ExternalDatabaseInfo, prometheus: PrometheusSource | None = None) -> FleetServer:
    """Return a server of a list after it was connected to. ``prometheus`` has samples of its host."""
    given = {field: getattr(server, field) for field in ListedServer.model_fields}
    host = server.labels.get(HOST_LABEL) or info.host
    pooled = info.pooler is not None
    return FleetServer(**given, version=info.version, scale=info.scale, host=host, pooled=pooled, prometheus=prometheus)


def warn_of_use(label: str, info: ExternalDatabaseInfo) -> list[str]:
    """Return warnings if the server is a primary with replicas, or if others use it. ``label`` names the server.

    Behind a pooler, its server's sessions include those of the pooler, so only replicas are named.
    """
    use, warnings = info.activity, []
    if use.replicas and not use.standby:
        warnings.append(f"Warning: {label} is a primary with {_count(use.replicas, 'replica')}: the load also delays these.")
    if info.pooler is None and use.busy:
        active = f"{use.busy} of {_count(use.sessions, 'session')}"
        warnings.append(f"Warning: others use {label}: {active} are active. They and the load disturb each other.")
    elif info.pooler is None and use.hidden:
        warnings.append(
            f"Warning: others may use {label}: {_count(use.hidden, 'session')} of other users, whose state is hidden "
            "(GRANT pg_read_all_stats shows it)."
        )
    return warnings


def describe_differences(servers: Sequence[FleetServer]) -> list[str]:
    """Return sentences on the hosts of a list, and warnings if versions or scales of its servers differ."""
    hosts: dict[str, list[str]] = {}
    for server in servers:
        hosts.setdefault(server.host, []).append(server.name)
    grouped = "; ".join(f"{host}: {', '.join(names)}" for host, names in hosts.items())
    sentences = [f"{len(servers)} servers on {_count(len(hosts), 'host')} by label or address ({grouped})."]
    versions, scales = [server.version for server in servers], [str(server.scale or "none") for server in servers]
    for what, values in (("PostgreSQL", versions), ("scale", scales)):
        if len(set(values)) > 1:
            by_server = ", ".join(f"{value} in {server.name}" for server, value in zip(servers, values, strict=True))
            sentences.append(f"Warning: {what} differs: {by_server}. Differences between subsets are then no scaling.")
    return sentences


def require_connections(label: str, info: ExternalDatabaseInfo, clients: int, limit: int | None) -> None:
    """Require that the connections of a trial are within ``--connection-limit`` and the free ones of the server.

    The limits of a pooler are unknown, so as many sessions are tried.

    Raises:
        UsageError: they are not.
    """
    needed = clients + PGHERD_CONNECTIONS
    if limit is not None and needed > limit:
        raise UsageError(
            f"{label}: {_count(clients, 'client')} and pgherd need {needed} connections, but --connection-limit is {limit}; "
            "lower --clients, or raise it"
        )
    if info.pooler is None and needed > info.activity.free:
        raise UsageError(
            f"{label}: {_count(clients, 'client')} and pgherd need {needed} connections, but the server has {info.activity.free} free; "
            f"lower --clients, or raise {info.activity.limit} there"
        )
    if info.pooler is not None:
        sessions, pgherds = (clients, "") if info.direct else (needed, " and pgherd")
        answered, error = answering_sessions(info.dsn, sessions)
        if answered < sessions:
            raise UsageError(
                f"{label}: {_count(clients, 'client')}{pgherds} need {sessions} sessions, but behind {info.pooler.name} {answered} answer "
                f"at the same time ({error or 'the others wait for a server connection'}); lower --clients, or raise default_pool_size "
                "(in session mode) or max_client_conn there"
            )


def most_clients(servers: Iterable[ExternalDatabaseInfo], limit: int | None) -> int | None:
    """Return the number of clients that every server accepts, at least 1. None: pgherd starts servers, or the number is unknown."""
    free = [info.activity.free for info in servers if info.pooler is None] + ([] if limit is None else [limit])
    return max(1, min(free) - PGHERD_CONNECTIONS) if free else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
