"""One guest's balloon as the manager sees it, and QEMU's virtio-balloon behind it, over QMP.

QMP commands: ``balloon``, ``query-balloon`` (qapi/machine.json), ``qom-set`` and ``qom-get`` of the device's statistics
(docs/interop/virtio-balloon-stats.rst of QEMU), ``query-blockstats`` (qapi/block-core.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pgherd.runtimes.balloon_estimate import Statistics
from pgherd.runtimes.balloon_policy import DEVICE, STATISTICS_SECONDS

_PATH = f"/machine/peripheral/{DEVICE}"
_MOST = 2**63
"""Values from here on mean that the guest does not tell: QEMU keeps all bits set, and prints them with or without a sign."""
_NAMES = {
    "free": "stat-free-memory",
    "available": "stat-available-memory",
    "total": "stat-total-memory",
    "caches": "stat-disk-caches",
    "swap_in": "stat-swap-in",
    "swap_out": "stat-swap-out",
    "major_faults": "stat-major-faults",
    "minor_faults": "stat-minor-faults",
}


class Machine(Protocol):
    """A QEMU. ``execute`` raises an exception when there is no answer in time, or none to be had."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        ...

    def execute(self, command: str, /, **arguments: Any) -> Any:
        """Run a QMP command and return its answer."""
        ...


class Balloon(Protocol):
    """A guest's balloon. Calls may take long, but must end; they raise an exception when the guest is gone or does not understand."""

    def set_target(self, size: int) -> None:
        """Have the guest keep ``size`` bytes of memory; it gets there by and by, or not at all."""
        ...

    def actual(self) -> int:
        """The memory that the guest has: what it was configured with less what is in its balloon, bytes."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """What the guest's driver said last, as QEMU gives it: ``{"stats": {…}, "last-update": seconds since the epoch, or 0}``."""
        ...

    def drives(self) -> list[Any]:
        """What QEMU counted of the guest's drives, as ``query-blockstats`` gives it."""
        ...


class QemuBalloon:
    """Implements ``Balloon`` over QMP. Has the device poll the guest once a second, from the first question for statistics on."""

    def __init__(self, machine: Machine) -> None:
        """The machine needs a balloon device whose id is ``balloon_policy.DEVICE``."""
        self._machine = machine
        self._polling = False

    def set_target(self, size: int) -> None:
        """``balloon``: QEMU's value is the memory that the guest keeps."""
        self._machine.execute("balloon", value=size)

    def actual(self) -> int:
        """``query-balloon``."""
        return int(self._machine.execute("query-balloon")["actual"])

    def statistics(self) -> Mapping[str, Any]:
        """The device's property ``guest-stats``."""
        if not self._polling:
            self._machine.execute("qom-set", path=_PATH, property="guest-stats-polling-interval", value=STATISTICS_SECONDS)
            self._polling = True
        found: Mapping[str, Any] = self._machine.execute("qom-get", path=_PATH, property="guest-stats")
        return found

    def drives(self) -> list[Any]:
        """``query-blockstats``."""
        found: list[Any] = self._machine.execute("query-blockstats")
        return found


def statistics_of(raw: Mapping[str, Any], drives: list[Any] | None = None) -> Statistics | None:
    """What ``guest-stats`` and ``query-blockstats`` say; None while the guest's driver has said nothing yet.

    Raises:
        ValueError: it is not of that form.
    """
    try:
        at, values = float(raw["last-update"]), dict(raw["stats"])
        told = {name: int(values[key]) for name, key in _NAMES.items() if 0 <= int(values.get(key, -1)) < _MOST}
        reads = sum(int(one["stats"]["rd_bytes"]) for one in drives) if drives else None
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a guest's statistics: {error}") from None
    return Statistics(at=at, reads=reads, **told) if at > 0 else None
