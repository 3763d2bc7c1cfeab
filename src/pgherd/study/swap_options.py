"""What a user may ask of the swap that a run makes for itself; for requests of studies that overcommit memory."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.run import SwapKind


class SwapRequest(Model):
    """Options to be inherited by a study's request. None: the study chooses, and says what."""

    swap: SwapKind | None = Field(None, description="what takes pages that do not fit: zram, file, none")
    swap_size: str | None = Field(None, description="size of that swap; of zram before compression")
    swap_dir: str | None = Field(None, description="an existing directory in which the swap file is to lie")
    swap_algorithm: str | None = Field(None, description="how zram compresses, such as lzo-rle, lz4, zstd")
    swap_memory: str | None = Field(None, description="most memory that zram may take for what it holds; nobody is charged for it")
