"""A link between two hosts, or between two network namespaces of one host, as a target."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pgherd.model.base import Model


class Link(Model):
    """What iperf3 loads. 'remote': an iperf3 server answers at ``host``:``port``. 'hosts': from the cluster's host ``near`` to the one
    that the link is named after, whose address ``host`` is; pgherd runs both ends. 'namespaces': pgherd makes two network namespaces
    joined by a pair of virtual cards, and runs both ends; ``rate`` (bits/s) and ``delay`` (ms, one way) shape it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")
    kind: Literal["remote", "hosts", "namespaces"] = "remote"
    near: str | None = Field(None, description="of kind 'hosts': the host at the near end, which runs iperf3's client")
    host: str = ""
    port: int = Field(5201, ge=1, le=65535)
    rate: float | None = Field(None, gt=0, description="bits/s")
    delay: float | None = Field(None, gt=0, description="ms, one way")

    @model_validator(mode="after")
    def _reachable(self) -> Link:
        if self.kind != "namespaces" and not self.host:
            raise ValueError(f"link {self.name} leads to no host")
        if (self.kind == "hosts") != (self.near is not None):
            raise ValueError(
                f"link {self.name} is {'of a cluster and begins at none of its hosts' if self.near is None else 'of no cluster'}"
            )
        if self.kind != "namespaces" and (self.rate is not None or self.delay is not None):
            raise ValueError(f"link {self.name} is between hosts, which pgherd does not shape: rate and delay are for namespaces")
        return self

    @property
    def target(self) -> str:
        """What names it as a target: ``NAME``, or ``NEAR/NAME`` between two hosts of a cluster."""
        return self.name if self.near is None else f"{self.near}/{self.name}"
