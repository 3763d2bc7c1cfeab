"""Common options of studies that can run on the hosts of a cluster."""

from __future__ import annotations

from typing import TypeVar

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.deployment import Host
from pgherd.model.run import OnLostHost
from pgherd.study.option import CLUSTER, StudyRequest, option

PIN = "host"
"""Label of a trial's host. Its value is the name of the cluster host that runs all containers of the trial."""


class ClusterRequest(StudyRequest):
    """Cluster options that the user gives. pgherd sets ``over``."""

    cluster: str | None = option(None, "Run on this cluster (see 'pgherd cluster').", CLUSTER, metavar="NAME|ADDRESS")
    cluster_certs: str | None = option(None, "Directory of the cluster's certificates.", CLUSTER, metavar="DIR")
    placement: str = option("spread", "spread, pack, label:KEY=VALUE or listed:CONTAINER=HOST,…", CLUSTER, metavar="RULE")
    on_lost_host: OnLostHost = option("continue", "When a host is lost: continue or stop.", CLUSTER, metavar="ACTION")
    over: tuple[Host, ...] = Field((), description="hosts of the cluster with their budgets")


CLUSTER_FIELDS = frozenset({*ClusterRequest.model_fields, "client_host"})
"""Options of a request that select hosts of a cluster. The other options apply to each host."""

Request = TypeVar("Request", bound=Model)


def of_one_host(asked: Request, **changes: object) -> Request:
    """Return the request for a single host: without cluster options and with these changes."""
    options = {name: getattr(asked, name) for name in asked.model_fields_set - CLUSTER_FIELDS}
    return type(asked).model_validate(options | changes)
