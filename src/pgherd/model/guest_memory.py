"""How the guests of a run share its memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.model.base import Model

GuestMemoryPolicy = Literal["static", "guest-balloon", "free-page-reporting"]
"""Who gives guests' memory back to the host: nobody; the balloons, which the host moves; each guest's kernel by itself."""


class GuestMemory(Model):
    """The policy of a run for all its guests.

    ``tax`` is the idle-memory tax of the ESX server: the largest share of a guest's idle memory that is taken for others (0: memory is
    divided by shares alone). ``reserve`` is the share of the host's budget that stays unallocated, so that a guest which grows at once
    does not make the host swap. ``overhead`` is what the hypervisor of each guest is reckoned to need for itself, bytes.
    """

    policy: GuestMemoryPolicy = "static"
    tax: float = Field(0.75, ge=0, lt=1)
    reserve: float = Field(0.02, ge=0, le=0.5)
    overhead: int = Field(64 * 2**20, ge=0)
