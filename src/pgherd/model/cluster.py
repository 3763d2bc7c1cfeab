"""The hosts that a run is spread over."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.deployment import Host

OnLostHost = Literal["continue", "stop"]


class Cluster(Model):
    """Where the agents are found, their hosts with the budget of each, and how containers are placed on them.

    ``hosts`` have no containers: a trial's deployment says which lies where. ``on_lost_host`` says whether the run goes on with the
    hosts that are left, in trials that are tainted by it, or ends and can be resumed. ``client`` is the one of the hosts on which the
    drivers of all databases run, and nothing else; None: each runs on its database's own host. ``in_turn``: every trial runs on one of
    the hosts, so that it is none the worse for the loss of another.
    """

    address: str = Field(min_length=1, description="its name, or its scheduler's address")
    tls: str | None = Field(None, description="directory of the certificates, where the address is not of a cluster that was started here")
    hosts: tuple[Host, ...] = Field(min_length=1)
    placement: str = "spread"
    on_lost_host: OnLostHost = "continue"
    client: str | None = None
    in_turn: bool = False

    @property
    def carriers(self) -> tuple[Host, ...]:
        """The hosts on which containers are placed: all but that of the clients."""
        return tuple(one for one in self.hosts if one.name != self.client)

    def host(self, name: str) -> Host:
        """The host of this name; raises KeyError."""
        return {one.name: one for one in self.hosts}[name]
