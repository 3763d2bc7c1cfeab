"""Options for the swap that a run creates, for studies that overcommit memory."""

from __future__ import annotations

from pgherd.model.run import SwapKind
from pgherd.model.units import Size
from pgherd.study.option import MEMORY, StudyRequest, option


class SwapRequest(StudyRequest):
    """Swap that a run creates for its containers. None: the study chooses."""

    swap: SwapKind | None = option(
        None, "Swap for the run: zram, file or none.", MEMORY, metavar="KIND", computed="zram where overcommitted"
    )
    swap_size: Size | None = option(None, "Its size; of zram before compression.", MEMORY, metavar="SIZE", computed="configured memory")
    swap_dir: str | None = option(None, "Directory of the swap file.", MEMORY, metavar="DIR", computed="pgherd's cache")
    zram_algorithm: str | None = option(None, "zram compression algorithm.", MEMORY, metavar="NAME", computed="the kernel's")
    zram_mem_limit: Size | None = option(None, "Maximum memory zram may use.", MEMORY, metavar="SIZE", computed="no limit")
