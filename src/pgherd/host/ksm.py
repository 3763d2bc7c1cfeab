"""Kernel same-page merging (KSM) of identical pages whose owner allows it.

Linux: Documentation/admin-guide/mm/ksm.rst. The machine has a single switch. Therefore it is a shared setting
(pgherd.host.shared_settings), and each change is in the journal before it is made.
"""

from __future__ import annotations

from pgherd.host import shared_settings
from pgherd.host.journal import Journal
from pgherd.host.permissions import may_write, remedy_to_write
from pgherd.host.undo_actions import ReleaseSetting
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Node

RUN = "/sys/kernel/mm/ksm/run"
"""0: off, merged pages stay merged. 1: on. 2: off, and all pages are split again."""
_ON = "1"


def check(node: Node) -> None:
    """Require that KSM is on or can be switched on, without a change.

    Raises:
        CapabilityError: the kernel has no KSM, or this user may not switch it on.
    """
    if not node.exists(RUN):
        raise CapabilityError(f"this kernel has no same-page merging (KSM): {RUN} does not exist; use a kernel with CONFIG_KSM")
    if not running(node) and not may_write(node, RUN):
        raise CapabilityError(
            f"same-page merging (KSM) is off ({RUN} is not {_ON}), and this user may not change it: {remedy_to_write(node, RUN)}"
        )


def running(node: Node) -> bool:
    """Return whether KSM is on."""
    return node.read(RUN).strip() == _ON.encode()


def switch_on(node: Node, journal: Journal) -> int | None:
    """Switch KSM on, and return the number of the journal entry that restores it.

    The result is None if KSM is on already and this user may not hold it.

    Raises:
        CapabilityError: KSM cannot be switched on.
    """
    check(node)
    if not may_write(node, RUN):
        return None
    undo = ReleaseSetting.for_journal(journal.id)
    number = journal.note(undo)
    try:
        shared_settings.choose(node, undo.key, RUN, _ON)
    except (shared_settings.SettingConflict, OSError) as error:
        journal.undo(number)
        raise CapabilityError(f"same-page merging (KSM) cannot be switched on: {error}") from error
    return number
