"""Swap that a run makes on its host: what kind, how large, where."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pgherd.model.base import Model

SwapKind = Literal["zram", "file", "none"]


class Swap(Model):
    """Swap for one run, beside what the host has, which is never touched.

    ``zram``: a compressed block device in memory, as a hypervisor compresses its guests' memory. ``size`` counts bytes before
    compression; ``memory`` (bytes) is the most memory that the compressed pages may take, None: as much as they need. This memory is
    the host's, and charged to no control group. ``algorithm`` None is the kernel's own choice.
    ``file``: a file of ``size`` bytes in the directory ``path``; None: pgherd's cache.
    ``none``: nothing is made, and no container of the run may use the host's.
    """

    kind: SwapKind
    size: int = Field(0, ge=0, description="bytes; 0 with kind none only")
    path: str | None = Field(None, description="directory of the file; kind file only")
    algorithm: str | None = Field(None, pattern=r"^[a-z0-9-]{1,32}$", description="of compression; kind zram only")
    memory: int | None = Field(None, gt=0, description="most bytes of memory that zram may take for itself")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Swap:
        if (self.kind == "none") != (self.size == 0):
            raise ValueError(f"swap of kind {self.kind} has a size of {self.size} bytes")
        if self.path is not None and self.kind != "file":
            raise ValueError(f"swap of kind {self.kind} lies in no directory")
        if self.kind != "zram" and (self.algorithm is not None or self.memory is not None):
            raise ValueError(f"swap of kind {self.kind} compresses nothing")
        return self
