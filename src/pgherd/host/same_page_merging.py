"""Kernel same-page merging (KSM): the kernel looks for equal pages in memory whose owner allows it, and keeps one of them.

Linux: Documentation/admin-guide/mm/ksm.rst. One switch serves the whole machine, so what is switched on here is held
(pgherd.host.holds) and in the journal before it is changed.
"""

from __future__ import annotations

import uuid

from pgherd.host import holds
from pgherd.host.journal import Journal
from pgherd.host.undo import GiveBack
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node

RUN = "/sys/kernel/mm/ksm/run"
"""0: off, what is merged stays; 1: on; 2: off, and everything is taken apart again."""
_ON = "1"


def check(node: Node) -> None:
    """Insist that pages can be merged. Changes nothing.

    Raises:
        CapabilityError: this kernel cannot, or this user may not switch it on.
    """
    if not node.exists(RUN):
        raise CapabilityError(f"this kernel cannot merge equal pages: there is no {RUN} (CONFIG_KSM)")
    if not running(node) and node.run(Command(("test", "-w", RUN))).code != 0:
        raise CapabilityError(f"equal pages are not merged now ({RUN} is not {_ON}), and this user may not change that: run pgherd as root")


def running(node: Node) -> bool:
    """Whether pages are being merged already."""
    return node.read(RUN).strip() == _ON.encode()


def switch_on(node: Node, journal: Journal) -> int | None:
    """Have pages merged; ``journal.undo`` of the number returned switches it back. None: it is on, and not ours to hold.

    Raises:
        CapabilityError: it cannot be switched on.
    """
    check(node)
    if node.run(Command(("test", "-w", RUN))).code != 0:
        return None
    key = f"{journal.id}-{uuid.uuid4().hex[:8]}"
    number = journal.note(GiveBack(key=key))
    try:
        holds.choose(node, key, RUN, _ON)
    except (holds.Held, OSError) as error:
        journal.undo(number)
        raise CapabilityError(f"merging of equal pages cannot be switched on: {error}") from error
    return number
