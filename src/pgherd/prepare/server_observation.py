"""How the host of an external server is observed: by the server's cgroup on this host, or by a Prometheus server."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from pgherd.host import server_cgroup
from pgherd.host.server_cgroup import ServerCgroup
from pgherd.metrics import prometheus
from pgherd.metrics.prometheus import PrometheusError
from pgherd.model.errors import UsageError
from pgherd.model.fleet import HOST_LABEL, ListedServer
from pgherd.model.prometheus import PrometheusSource, values_of
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.postgres.provider import provider_of, quoted

Looked = Sequence[tuple[ListedServer, ExternalDatabaseInfo]]
"""Existing servers with their properties. The server of --dsn has no name."""
_UNSEEN = "so its CPU, memory and disks are not observed, and checks of them are unknown"


def describe_cgroups(node: Node, servers: Looked) -> list[str]:
    """Return the sentences on the servers' cgroups: those that are named, or those of their processes, if these are known.

    Raises:
        UsageError: a name is that of no cgroup of the server alone.
    """
    looked = [(server, *_cgroup(node, found, server)) for server, found in servers]
    sentences = []
    for server, group, text in looked:
        others = [other.name for other, taken, _ in looked if group and taken and other is not server and taken.groups == group.groups]
        if group is not None and others:
            shared = f"it contains server {others[0]} too, so its counters are not one server's alone"
            if server.container is not None:
                raise UsageError(f"{_option(server)} {server.container}: {shared}; correct it, or leave it out")
            text = f"Its cgroup {group.path} is not used, {_UNSEEN}: {shared}."
        sentences.append((server, text))
    return _grouped(sentences)


def _cgroup(node: Node, found: ExternalDatabaseInfo, server: ListedServer) -> tuple[ServerCgroup | None, str]:
    """Return the cgroup of a server, None if it is not used, and the sentence on it."""
    if server.container is not None:
        origin = f"{_option(server)} {server.container}"
        group = server_cgroup.resolve(node, server.container, _option(server))
    elif not found.pid:
        hint = f"give {'its container in the list' if server.name else '--server-cgroup'}"
        return None, f"No process here is known to be this server's, {_UNSEEN}; if it runs on this host, {hint}."
    else:
        try:
            group = server_cgroup.resolve(node, f"pid:{found.pid}", "its process")
        except UsageError as error:
            return None, f"Its cgroup is not used, {_UNSEEN}: {error}."
        origin = f"of its process {found.pid}"
    limits = [] if group.cores is None else [f"{group.cores:g} cores"]
    limits += [] if group.memory is None else [format_bytes(group.memory)]
    return group, f"Its cgroup is {group.path} ({origin}), limited to {' and '.join(limits) or 'nothing'}. It is only read."


def _option(server: ListedServer) -> str:
    return f"server {server.name}: container" if server.name else "--server-cgroup"


def _grouped(sentences: Iterable[tuple[ListedServer, str]]) -> list[str]:
    """Return each sentence once, after the names of the servers that it is about."""
    names: dict[str, list[str]] = {}
    for server, sentence in sentences:
        names.setdefault(sentence, []).extend([server.name] if server.name else [])
    return [f"{', '.join(about)}: {sentence}" if about else sentence for sentence, about in names.items()]


_THIS_HOST = ("", "localhost", "127.0.0.1", "::1")


def prometheus_source(url: str, match: str, server: ListedServer, found: ExternalDatabaseInfo) -> PrometheusSource:
    """Return the series of the server's host, and of its container if that is named, in the Prometheus server at ``url``.

    The host is the server's label 'host', or its address without one. An address of this host may be the end of a tunnel, so the
    server's process must be found here.

    Raises:
        UsageError: ``match`` has another form than ``host=LABEL``, or the host or the container cannot be known by its label there.
    """
    ours, equals, theirs = match.partition("=")
    if ours != HOST_LABEL or not equals:
        raise UsageError(f"--prometheus-match {match}: write it as host=LABEL, such as host=instance; only hosts are matched")
    pattern, cgroup = None, server.container
    if cgroup is not None:
        kind, _, value = cgroup.partition(":")
        if kind == "container":
            pattern = rf"(.*[-:/])?{re.escape(value)}[0-9a-f]*(\.scope)?"
        elif cgroup.startswith("/"):
            pattern = re.escape(cgroup)
        else:
            raise UsageError(
                f"{_option(server)} {cgroup}: with --prometheus, write it as /PATH or container:ID, as in cAdvisor's label 'id'"
            )
    host = server.labels.get(HOST_LABEL) or found.host
    here = host.startswith("/") or host in _THIS_HOST
    if here and not found.pid:
        local = "" if found.pooler is not None else ", or, if it runs here, connect through its Unix socket, or run pgherd as root"
        raise UsageError(
            f"{f'server {server.name}' if server.name else '--dsn'}: it is reached at {host or 'a local socket'}, but nothing shows "
            f"that it runs on this host, so --prometheus could show another one; list it with --servers and the label host=NAME{local}"
        )
    hosts = (socket.gethostname(), "localhost", "127.0.0.1") if here else (host,)
    try:
        return PrometheusSource(url=url, label=theirs, values=values_of(hosts), container_id=pattern)
    except ValidationError as error:
        fault = error.errors()[0]
        option = "--prometheus" if fault["loc"] == ("url",) else f"--prometheus-match {match}"
        raise UsageError(f"{option}: {fault['msg'].removeprefix('Value error, ')}") from None


def describe_prometheus(servers: Looked, sources: Sequence[PrometheusSource | None]) -> list[str]:
    """Return the sentences on the series that there are of each server.

    Raises:
        UsageError: Prometheus does not answer, or has none of a server.
    """
    pairs = zip(servers, sources, strict=True)
    return _grouped((server, _series(server, source)) for (server, _), source in pairs if source is not None)


def _series(server: ListedServer, source: PrometheusSource) -> str:
    try:
        found = prometheus.available(source)
    except PrometheusError as error:
        raise UsageError(f"--prometheus: {error}") from None
    if not found:
        raise UsageError(
            f"--prometheus: Prometheus at {source.url} has no recent series of node_exporter, cAdvisor or postgres_exporter with "
            f"{source.text}{f' of server {server.name}' if server.name else ''}; choose the label with --prometheus-match host=LABEL"
        )
    counts = ", ".join(f"{len(names)} of {exporter}" for exporter, names in sorted(found.items()))
    missing = f" Its container is unknown without {'container in the list' if server.name else '--server-cgroup'}."
    container = "" if source.container_id is not None else missing
    return f"Metrics of its host are from Prometheus at {source.url}, {source.text}: series {counts}.{container}"


def describe_facts(servers: Looked) -> list[str]:
    """Return the sentences on the servers' providers, and on what is hidden from the user, with the grant that helps."""
    sentences = []
    for server, found in servers:
        facts, provider = found.facts, provider_of(found.facts, found.host)
        if provider is not None:
            sentences.append((server, f"The server is one of {provider.name}. Unknown there: {provider.unknown}."))
        if facts.hidden:
            hidden = f"Hidden from role {facts.role}: {', '.join(facts.hidden)}."
            sentences.append((server, f"{hidden} As a superuser: GRANT pg_monitor TO {quoted(facts.role)};"))
        if facts.no_statements:
            sentences.append((server, f"Time by statement is not observed: {facts.no_statements}"))
    return _grouped(sentences)
