"""A link between two hosts, or between two network namespaces of one host, as a target."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pgherd.model.base import Model


class Link(Model):
    """What iperf3 loads. 'remote': an iperf3 server answers at ``host``:``port``. 'namespaces': pgherd makes two network namespaces
    joined by a pair of virtual cards, and runs both ends; ``rate`` (bits/s) and ``delay`` (ms, one way) shape it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")
    kind: Literal["remote", "namespaces"] = "remote"
    host: str = ""
    port: int = Field(5201, ge=1, le=65535)
    rate: float | None = Field(None, gt=0, description="bits/s")
    delay: float | None = Field(None, gt=0, description="ms, one way")

    @model_validator(mode="after")
    def _reachable(self) -> Link:
        if self.kind == "remote" and not self.host:
            raise ValueError(f"link {self.name} leads to no host")
        if self.kind == "remote" and (self.rate is not None or self.delay is not None):
            raise ValueError(f"link {self.name} is between hosts, which pgherd does not shape: rate and delay are for namespaces")
        return self
