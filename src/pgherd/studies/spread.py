"""What studies share that can be spread over the hosts of a cluster."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.cluster import OnLostHost
from pgherd.model.deployment import Host


class SpreadRequest(Model):
    """Where a study is to run, if not on this host. Beside the request of a study, as a base of the same class."""

    cluster: str | None = Field(None, description="a cluster by its name or its scheduler's address: the study runs on all of its hosts")
    cluster_tls: str | None = Field(None, description="directory of the certificates of a cluster that was not started here")
    placement: str = Field("spread", description="which container lies where: spread, pack, label:KEY=VALUE, listed:CONTAINER=HOST,…")
    on_lost_host: OnLostHost = Field("continue", description="when a host is lost: whether the run goes on with the others, or stops")
    over: tuple[Host, ...] = Field((), description="the hosts of the cluster with their budgets; pgherd fills it in")
