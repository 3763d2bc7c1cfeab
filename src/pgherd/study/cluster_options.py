"""What studies share that can be run on the hosts of a cluster."""

from __future__ import annotations

from typing import TypeVar

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.deployment import Host
from pgherd.model.run import OnLostHost
from pgherd.study.option import CLUSTER, StudyRequest, option

PIN = "host"
"""The label by which a trial's host names the host of the cluster on which all its containers are to lie."""


class ClusterRequest(StudyRequest):
    """Hosts of a cluster on which a study runs. ``over`` is filled in by pgherd."""

    cluster: str | None = option(None, "Run on this cluster (see 'pgherd cluster').", CLUSTER, metavar="NAME|ADDRESS")
    cluster_certs: str | None = option(None, "Directory of the cluster's certificates.", CLUSTER, metavar="DIR")
    placement: str = option("spread", "spread, pack, label:KEY=VALUE or listed:CONTAINER=HOST,…", CLUSTER, metavar="RULE")
    on_lost_host: OnLostHost = option("continue", "When a host is lost: continue or stop.", CLUSTER, metavar="ACTION")
    over: tuple[Host, ...] = Field((), description="the hosts of the cluster with their budgets")


CLUSTER_FIELDS = frozenset({*ClusterRequest.model_fields, "client_host"})
"""The options of a request that say where in a cluster it runs; what it asks for of a host is in the others."""

Request = TypeVar("Request", bound=Model)


def of_one_host(asked: Request, **changes: object) -> Request:
    """The request as one of a single host, which knows of no cluster, with these changes."""
    kept = {name: getattr(asked, name) for name in asked.model_fields_set - CLUSTER_FIELDS}
    return type(asked).model_validate(kept | changes)
