"""How the host of an external server is observed: by the server's cgroup on this host, or by a Prometheus server."""

from __future__ import annotations

import re
import socket

from pydantic import ValidationError

from pgherd.host import server_cgroup
from pgherd.metrics import prometheus
from pgherd.metrics.prometheus import PrometheusError
from pgherd.model.errors import UsageError
from pgherd.model.prometheus import PrometheusSource, values_of
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.postgres.provider import provider_of, quoted


def describe_cgroup(node: Node, found: ExternalDatabaseInfo, text: str | None) -> str:
    """Return the sentence on the server's cgroup, which ``text`` names. None: the cgroup of its process, if that is known.

    Raises:
        UsageError: ``text`` names no cgroup of the server alone.
    """
    unseen = "so its CPU, memory and disks are not observed, and checks of them are unknown"
    if text is not None:
        group = server_cgroup.resolve(node, text)
        origin = f"--server-cgroup {text}"
    elif not found.pid:
        return f"No process here is known to be this server's, {unseen}; if it runs on this host, give --server-cgroup."
    else:
        try:
            group = server_cgroup.resolve(node, f"pid:{found.pid}", "its process")
        except UsageError as error:
            return f"Its cgroup is not used, {unseen}: {error}."
        origin = f"of its process {found.pid}"
    limits = [] if group.cores is None else [f"{group.cores:g} cores"]
    limits += [] if group.memory is None else [format_bytes(group.memory)]
    return f"Its cgroup is {group.path} ({origin}), limited to {' and '.join(limits) or 'nothing'}. It is only read."


_THIS_HOST = ("", "localhost", "127.0.0.1", "::1")


def prometheus_source(url: str, match: str, found: ExternalDatabaseInfo, cgroup: str | None) -> PrometheusSource:
    """Return the series of the server's host, and of the container that --server-cgroup names, in the Prometheus server at ``url``.

    Raises:
        UsageError: ``match`` has another form than ``host=LABEL``, or the container cannot be known by its label there.
    """
    ours, equals, theirs = match.partition("=")
    if ours != "host" or not equals:
        raise UsageError(f"--prometheus-match {match}: write it as host=LABEL, such as host=instance; the server's host is its only label")
    pattern = None
    if cgroup is not None:
        kind, _, value = cgroup.partition(":")
        if kind == "container":
            pattern = rf"(.*[-:/])?{re.escape(value)}[0-9a-f]*(\.scope)?"
        elif cgroup.startswith("/"):
            pattern = re.escape(cgroup)
        else:
            raise UsageError(f"--server-cgroup {cgroup}: with --prometheus, write it as /PATH or container:ID, as in cAdvisor's label 'id'")
    here = found.host.startswith("/") or found.host in _THIS_HOST
    hosts = (socket.gethostname(), "localhost", "127.0.0.1") if here else (found.host,)
    try:
        return PrometheusSource(url=url, label=theirs, values=values_of(hosts), container_id=pattern)
    except ValidationError as error:
        fault = error.errors()[0]
        option = "--prometheus" if fault["loc"] == ("url",) else f"--prometheus-match {match}"
        raise UsageError(f"{option}: {fault['msg'].removeprefix('Value error, ')}") from None


def describe_prometheus(source: PrometheusSource) -> str:
    """Return the sentence on the series that there are.

    Raises:
        UsageError: Prometheus does not answer, or has none of them.
    """
    try:
        found = prometheus.available(source)
    except PrometheusError as error:
        raise UsageError(f"--prometheus: {error}") from None
    if not found:
        raise UsageError(
            f"--prometheus: Prometheus at {source.url} has no recent series of node_exporter, cAdvisor or postgres_exporter with "
            f"{source.text}; choose the label with --prometheus-match host=LABEL"
        )
    counts = ", ".join(f"{len(names)} of {exporter}" for exporter, names in sorted(found.items()))
    container = "" if source.container_id is not None else " Its container is unknown without --server-cgroup."
    return f"Metrics of its host are from Prometheus at {source.url}, {source.text}: series {counts}.{container}"


def describe_facts(found: ExternalDatabaseInfo) -> list[str]:
    """Return the sentences on the server's provider, its replicas, and what is hidden from the user, with the grant that helps."""
    facts, messages = found.facts, []
    provider = provider_of(facts, found.host)
    if provider is not None:
        messages.append(f"The server is one of {provider.name}. Unknown there: {provider.unknown}.")
    if facts.replicas:
        messages.append(f"Warning: {facts.replicas} replica{'s' if facts.replicas > 1 else ''} receive WAL from this server.")
    if facts.hidden:
        messages.append(
            f"Hidden from role {facts.role}: {', '.join(facts.hidden)}. As a superuser: GRANT pg_monitor TO {quoted(facts.role)};"
        )
    return messages
