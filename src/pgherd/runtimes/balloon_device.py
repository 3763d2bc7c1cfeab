"""One guest's balloon as the manager sees it, and QEMU's virtio-balloon behind it, over QMP.

QMP commands: ``balloon``, ``query-balloon``, and the event ``BALLOON_CHANGE`` (qapi/machine.json), ``qom-set`` and ``qom-get`` of the
device's statistics (docs/interop/virtio-balloon-stats.rst of QEMU), ``query-blockstats`` (qapi/block-core.json).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pgherd.runtimes.balloon_estimate import Statistics
from pgherd.runtimes.vm.qemu import BALLOON

_T = TypeVar("_T")
STATISTICS_SECONDS = 1
"""Period at which the balloon device polls the guest's driver."""
_POLLED: dict[str, Any] = {"path": BALLOON, "property": "guest-stats-polling-interval", "value": STATISTICS_SECONDS}
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


_MOVED = "BALLOON_CHANGE"
"""The event by which QEMU tells that a guest's balloon has another size, at most once a second."""
_AGAIN = 10
"""The size of a balloon that rests is asked for once in so many looks."""
_OF_A_DRIVE = ("device", "qdev", "node-name", "stats")
"""What is kept of ``query-blockstats``: the drive itself. Its image file is counted below that again, in as many words."""


class Questions(Protocol):
    """Questions to a QEMU."""

    def ask(self, commands: Sequence[tuple[str, dict[str, Any] | None]], then: Callable[[list[Any]], _T], /) -> Future[_T]:
        """Have QMP commands run, each with its arguments. The future gives what ``then`` makes of their answers, or raises an exception
        when there are none to be had."""
        ...

    def heard(self, event: str, /) -> object:
        """What differs from any former answer once QEMU has told of an event of this name since, or was connected with anew."""
        ...


class Machine(Protocol):
    """A QEMU."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        ...

    @property
    def qmp(self) -> Questions:
        """Its QMP monitor."""
        ...


@dataclass(frozen=True)
class Look:
    """A guest at the instant ``at``, seconds since the epoch.

    ``actual``: the memory that it has, what it was configured with less what is in its balloon, bytes.
    ``statistics``: what the guest's driver said last, as QEMU gives it, ``{"stats": {…}, "last-update": seconds since the epoch, or 0}``.
    ``drives``: what QEMU counted of its drives, as ``query-blockstats`` gives it but for what lies below them; empty where it was not
    asked.
    """

    at: float
    actual: int
    statistics: Mapping[str, Any]
    drives: list[Any]


class Balloon(Protocol):
    """A guest's balloon. Calls return at once, and their futures end some day; they raise an exception when the guest is gone or does not
    understand."""

    def set_target(self, size: int) -> Future[int]:
        """Have the guest keep ``size`` bytes of memory, which the future gives; it gets there by and by, or not at all."""
        ...

    def look(self, *, drives: bool) -> Future[Look]:
        """How the guest is now; with ``drives`` theirs too."""
        ...


class QemuBalloon:
    """Implements ``Balloon`` over QMP, for who waits for one answer before the next question. Has the device poll the guest once a second,
    from the first look on.

    Each question takes CPU of the host that is measured. So the size of a balloon that is where it was sent is asked for only when QEMU
    has told that it moved, and now and then besides: QEMU tells of the first move at once, and of further ones within a second.
    """

    def __init__(self, qemu: Questions) -> None:
        """QEMU needs a balloon device whose id is ``balloon_policy.DEVICE``."""
        self._qemu = qemu
        self._polling = False
        self._looks = 0
        self._target: int | None = None
        self._actual: int | None = None
        self._heard: object = None

    def set_target(self, size: int) -> Future[int]:
        """``balloon``: QEMU's value is the memory that the guest keeps."""
        self._target = size
        return self._qemu.ask([("balloon", {"value": size})], lambda answers: size)

    def look(self, *, drives: bool) -> Future[Look]:
        """``query-balloon``, the device's property ``guest-stats``, and ``query-blockstats``."""
        heard = self._qemu.heard(_MOVED)
        still = self._actual is not None and self._target in (None, self._actual) and heard == self._heard and self._looks % _AGAIN != 0
        asked: list[tuple[str, dict[str, Any] | None]] = [
            *([] if self._polling else [("qom-set", _POLLED)]),
            ("qom-get", {"path": BALLOON, "property": "guest-stats"}),
            *([] if still else [("query-balloon", None)]),
            *([("query-blockstats", None)] if drives else []),
        ]
        self._looks += 1

        def seen(values: list[Any]) -> Look:
            answers = dict(zip((command for command, _ in asked), values, strict=True))
            self._polling = True
            if "query-balloon" in answers:
                self._actual, self._heard = int(answers["query-balloon"]["actual"]), heard
            assert self._actual is not None
            counted = [{key: one[key] for key in _OF_A_DRIVE if key in one} for one in answers.get("query-blockstats", ())]
            return Look(time.time(), self._actual, answers["qom-get"], counted)

        return self._qemu.ask(asked, seen)


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
