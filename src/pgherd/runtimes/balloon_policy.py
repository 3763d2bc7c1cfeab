"""What each policy for guests' memory switches on: in QEMU's balloon device, and in the manager on the host.

All policies have the device, so that the guests' statistics are seen whatever is done with them; what differs is one thing each, so
that E5 and E6 can tell their effects apart.

| policy | the manager moves targets | free page reporting |
|---|---|---|
| ``static`` | no | no |
| ``guest-balloon`` | yes | no |
| ``free-page-reporting`` | no | yes: the guest's kernel gives back what is free for long, in blocks of 2 MB on x86 |

``deflate-on-oom`` is on in all: a guest takes pages out of its balloon before it ends a process. With it the guest's MemTotal stays as
configured, and what is in the balloon is missing from its MemAvailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgherd.model.deployment import GuestMemoryPolicy
from pgherd.model.errors import UsageError

DEVICE = "balloon0"
"""The id of the balloon device in every guest."""
STATISTICS_SECONDS = 1
"""How often the device asks the guest's driver for statistics."""


@dataclass(frozen=True)
class Switched:
    """What a policy means: whether the manager moves targets, and whether the guest reports its free pages."""

    moves: bool
    reports: bool


SWITCHED: Mapping[GuestMemoryPolicy, Switched] = {
    "static": Switched(moves=False, reports=False),
    "guest-balloon": Switched(moves=True, reports=False),
    "free-page-reporting": Switched(moves=False, reports=True),
}


def moves(policy: GuestMemoryPolicy) -> bool:
    """Whether the manager sets balloon targets under this policy."""
    return SWITCHED[policy].moves


def reports(policy: GuestMemoryPolicy) -> bool:
    """Whether the guest's balloon device has free page reporting under this policy (``free-page-reporting=on``)."""
    return SWITCHED[policy].reports


def refuse_what_cannot_be_given_back(policy: GuestMemoryPolicy, *, huge_pages: bool, locked: bool) -> None:
    """A policy that gives memory back needs guest memory that can be: the balloon counts in 4 kB, and QEMU does not discard parts of a
    huge page; locked memory is never discarded.

    Raises:
        UsageError: the guest's memory is backed by huge pages, or locked, and the policy is not ``static``.
    """
    if policy == "static" or not (huge_pages or locked):
        return
    what = "backed by huge pages" if huge_pages else "locked"
    raise UsageError(f"guest memory that is {what} cannot be given back, so that policy '{policy}' would do nothing; use 'static'")
