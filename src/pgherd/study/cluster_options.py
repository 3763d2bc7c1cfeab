"""What studies share that can be run on the hosts of a cluster."""

from __future__ import annotations

from typing import TypeVar

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.deployment import Host
from pgherd.model.run import OnLostHost

PIN = "host"
"""The label by which a trial's host names the host of the cluster on which all its containers are to lie."""


class SpreadRequest(Model):
    """Where a study is to run, if not on this host. Beside the request of a study, as a base of the same class."""

    cluster: str | None = Field(None, description="a cluster by its name or its scheduler's address: the study runs on its hosts")
    cluster_tls: str | None = Field(None, description="directory of the certificates of a cluster that was not started here")
    placement: str = Field("spread", description="which container lies where: spread, pack, label:KEY=VALUE, listed:CONTAINER=HOST,…")
    on_lost_host: OnLostHost = Field("continue", description="when a host is lost: whether the run goes on with the others, or stops")
    over: tuple[Host, ...] = Field((), description="the hosts of the cluster with their budgets; pgherd fills it in")


CLUSTER_FIELDS = frozenset({*SpreadRequest.model_fields, "client_host"})
"""The options of a request that say where in a cluster it runs; what it asks for of a host is in the others."""

Request = TypeVar("Request", bound=Model)


def of_one_host(asked: Request, **changes: object) -> Request:
    """The request as one of a single host, which knows of no cluster, with these changes."""
    kept = {name: getattr(asked, name) for name in asked.model_fields_set - CLUSTER_FIELDS}
    return type(asked).model_validate(kept | changes)
