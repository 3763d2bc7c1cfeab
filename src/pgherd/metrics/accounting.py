"""Which of a container's control groups accounts for what: v1 where it has both, since then the controllers lie there.

Pressure figures need no controller: a v2 group beside v1 ones has them too (hybrid).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

BUDGET = "budget"
"""The entity of the group around all containers."""
LOCKED = "locked-memory"
"""The name of the idle container whose memory is locked, where that is how memory is withheld."""


class Accounting(NamedTuple):
    """The hierarchy that accounts for something, and the group's directory in it."""

    version: Literal["v1", "v2"]
    directory: str


def cpu(groups: Mapping[str, str]) -> Accounting | None:
    """Where CPU time is counted; None where nothing counts it."""
    return _choose(groups, "cpuacct")


def memory(groups: Mapping[str, str]) -> Accounting | None:
    """Where memory is charged; None where nothing charges it."""
    return _choose(groups, "memory")


def _choose(groups: Mapping[str, str], controller: str) -> Accounting | None:
    if groups.get(controller):
        return Accounting("v1", groups[controller])
    return Accounting("v2", groups["v2"]) if groups.get("v2") else None
