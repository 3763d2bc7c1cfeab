"""Existing servers of a list, which pgherd loads and does not start."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.base import NAME, Model
from pgherd.model.deployment import SERVER_NAME
from pgherd.model.prometheus import PrometheusSource

HOST_LABEL = "host"
"""Label that names the host below a server."""


class ListedServer(Model):
    """Server as its owner lists it.

    ``dsn`` and ``direct`` have no password once ``prepare.fleet`` has read them. ``capacity`` is in cores, and ``price`` in a unit that is
    the same for all servers.
    """

    name: str = Field(pattern=SERVER_NAME)
    dsn: str = Field("", description="connection string, without database and user if the service has them")
    service: str | None = Field(None, pattern=NAME, description="name in libpq's service file")
    direct: str | None = Field(None, description="DSN of the server itself for samples, if dsn leads to a pooler")
    labels: dict[str, str] = Field(default_factory=dict, description="servers with the same label 'host' share a host")
    container: str | None = Field(None, description="its cgroup on its host: /PATH, pid:N or container:ID (None: found if provable)")
    capacity: float | None = Field(None, gt=0)
    price: float | None = Field(None, ge=0)


class FleetServer(ListedServer):
    """Server of a list that was connected to.

    ``scale`` is that of pgbench's tables (None: it has none). ``host`` is its label or its address. ``prometheus`` has samples of its host.
    """

    version: str
    scale: int | None = Field(None, ge=1)
    host: str
    pooled: bool = Field(False, description="dsn leads to a pooler")
    prometheus: PrometheusSource | None = None
