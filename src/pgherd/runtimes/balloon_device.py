"""Balloon of one guest: the interface of the manager, and QEMU's virtio-balloon over QMP.

QMP commands: ``balloon``, ``query-balloon``, and the event ``BALLOON_CHANGE`` (qapi/machine.json), ``qom-set`` and ``qom-get`` of the
device's statistics (docs/interop/virtio-balloon-stats.rst of QEMU), ``query-blockstats`` (qapi/block-core.json).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pgherd.runtimes.guest_memory_estimate import BalloonStats
from pgherd.runtimes.vm.qemu import BALLOON

_T = TypeVar("_T")
STATISTICS_SECONDS = 1
"""Period at which the balloon device polls the guest's driver."""
_POLLING: dict[str, Any] = {"path": BALLOON, "property": "guest-stats-polling-interval", "value": STATISTICS_SECONDS}
_MISSING_FROM = 2**63
"""Values from here on are missing: QEMU sets all bits of a value that the guest does not report, and prints it with or without a sign."""
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


_MOVED_EVENT = "BALLOON_CHANGE"
"""Event after a change of the balloon's size, at most one per second."""
_SIZE_INTERVAL = 10
"""Number of polls after which the size of a balloon at rest is queried again."""
_DRIVE_KEYS = ("device", "qdev", "node-name", "stats")
"""Keys of ``query-blockstats`` that are kept. The others describe the image file below, with the same counters."""


class QmpQueries(Protocol):
    """QMP commands of one QEMU."""

    def ask(self, commands: Sequence[tuple[str, dict[str, Any] | None]], then: Callable[[list[Any]], _T], /) -> Future[_T]:
        """Run QMP commands with their arguments. The future holds the result of ``then`` for their answers, or an exception."""
        ...

    def heard(self, event: str, /) -> object:
        """Return a value that changes with each event of this name, and with each new connection."""
        ...


class QmpTarget(Protocol):
    """QEMU process of a guest."""

    @property
    def running(self) -> bool: ...

    @property
    def qmp(self) -> QmpQueries: ...


@dataclass(frozen=True)
class GuestReading:
    """Reading of a guest at the instant ``at``, seconds since the epoch.

    ``actual``: its present memory, configured memory minus balloon, bytes.
    ``statistics``: last report of the guest's driver as QEMU returns it, ``{"stats": {…}, "last-update": seconds since the epoch, or 0}``.
    ``drives``: counters of its drives from ``query-blockstats``, without the nodes below them. Empty where they were not requested.
    """

    at: float
    actual: int
    statistics: Mapping[str, Any]
    drives: list[Any]


class GuestBalloon(Protocol):
    """Balloon of a guest.

    Calls return at once. A future ends with an exception when the guest has ended or does not support the command.
    """

    def set_target(self, size: int) -> Future[int]:
        """Request that the guest keeps ``size`` bytes of memory. The future holds the size. The guest reaches it later, or never."""
        ...

    def poll(self, *, drives: bool) -> Future[GuestReading]:
        """Read the guest, and with ``drives`` its drives."""
        ...


class QemuBalloon:
    """Balloon over QMP, for a caller that has one call at a time. From the first reading on the device polls the guest once per second.

    Each command takes CPU of the measured host. The size of a balloon at its target is therefore queried only after QEMU has sent an event,
    and in every tenth reading. QEMU sends an event for the first move at once, and for later ones within a second.
    """

    def __init__(self, qemu: QmpQueries) -> None:
        """QEMU needs a balloon device at the path ``qemu.BALLOON``."""
        self._qemu = qemu
        self._polling = False
        self._looks = 0
        self._target: int | None = None
        self._actual: int | None = None
        self._heard: object = None

    def set_target(self, size: int) -> Future[int]:
        self._target = size
        return self._qemu.ask([("balloon", {"value": size})], lambda answers: size)

    def poll(self, *, drives: bool) -> Future[GuestReading]:
        events = self._qemu.heard(_MOVED_EVENT)
        at_rest = (
            self._actual is not None
            and self._target in (None, self._actual)
            and events == self._heard
            and self._looks % _SIZE_INTERVAL != 0
        )
        commands: list[tuple[str, dict[str, Any] | None]] = [
            *([] if self._polling else [("qom-set", _POLLING)]),
            ("qom-get", {"path": BALLOON, "property": "guest-stats"}),
            *([] if at_rest else [("query-balloon", None)]),
            *([("query-blockstats", None)] if drives else []),
        ]
        self._looks += 1

        def reading_of(values: list[Any]) -> GuestReading:
            answers = dict(zip((command for command, _ in commands), values, strict=True))
            self._polling = True
            if "query-balloon" in answers:
                self._actual, self._heard = int(answers["query-balloon"]["actual"]), events
            assert self._actual is not None
            counters = [{key: drive[key] for key in _DRIVE_KEYS if key in drive} for drive in answers.get("query-blockstats", ())]
            return GuestReading(time.time(), self._actual, answers["qom-get"], counters)

        return self._qemu.ask(commands, reading_of)


def statistics_of(raw: Mapping[str, Any], drives: list[Any] | None = None) -> BalloonStats | None:
    """Parse ``guest-stats`` and ``query-blockstats``. Return None before the first report of the guest's driver.

    Raises:
        ValueError: the answer has another form.
    """
    try:
        at, values = float(raw["last-update"]), dict(raw["stats"])
        reported = {name: int(values[key]) for name, key in _NAMES.items() if 0 <= int(values.get(key, -1)) < _MISSING_FROM}
        reads = sum(int(drive["stats"]["rd_bytes"]) for drive in drives) if drives else None
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a guest's statistics: {error}") from None
    return BalloonStats(at=at, reads=reads, **reported) if at > 0 else None
