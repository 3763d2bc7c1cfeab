"""One guest's balloon as the manager sees it, and QEMU's virtio-balloon behind it, over QMP.

QMP commands: ``balloon``, ``query-balloon``, and the event ``BALLOON_CHANGE`` (qapi/machine.json), ``qom-set`` and ``qom-get`` of the
device's statistics (docs/interop/virtio-balloon-stats.rst of QEMU), ``query-blockstats`` (qapi/block-core.json).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


_MOVED = "BALLOON_CHANGE"
"""The event by which QEMU tells that a guest's balloon has another size, at most once a second."""
_AGAIN = 10
"""The size of a balloon that rests is asked for once in so many looks."""
_OF_A_DRIVE = ("device", "qdev", "node-name", "stats")
"""What is kept of ``query-blockstats``: the drive itself. Its image file is counted below that again, in as many words."""


class Machine(Protocol):
    """A QEMU. Its calls raise an exception when there is no answer in time, or none to be had."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        ...

    def execute(self, command: str, /, **arguments: Any) -> Any:
        """Run a QMP command and return its answer."""
        ...

    def execute_all(self, commands: Sequence[tuple[str, dict[str, Any] | None]]) -> list[Any]:
        """Run several, each with its arguments, and return their answers."""
        ...

    def heard(self, event: str, /) -> object:
        """What differs from any former answer once QEMU has told of an event of this name since, or was connected with anew."""
        ...


@dataclass(frozen=True)
class Look:
    """A guest at one instant. ``actual``: the memory that it has, what it was configured with less what is in its balloon, bytes.
    ``statistics``: what the guest's driver said last, as QEMU gives it, ``{"stats": {…}, "last-update": seconds since the epoch, or 0}``.
    ``drives``: what QEMU counted of its drives, as ``query-blockstats`` gives it but for what lies below them; empty where it was not
    asked."""

    actual: int
    statistics: Mapping[str, Any]
    drives: list[Any]


class Balloon(Protocol):
    """A guest's balloon. Calls may take long, but must end; they raise an exception when the guest is gone or does not understand."""

    def set_target(self, size: int) -> None:
        """Have the guest keep ``size`` bytes of memory; it gets there by and by, or not at all."""
        ...

    def look(self, *, drives: bool) -> Look:
        """How the guest is now; with ``drives`` theirs too."""
        ...


class QemuBalloon:
    """Implements ``Balloon`` over QMP. Has the device poll the guest once a second, from the first look on.

    Each question takes CPU of the host that is measured. So the size of a balloon that is where it was sent is asked for only when QEMU
    has told that it moved, and now and then besides: QEMU tells of the first move at once, and of further ones within a second.
    """

    def __init__(self, machine: Machine) -> None:
        """The machine needs a balloon device whose id is ``balloon_policy.DEVICE``."""
        self._machine = machine
        self._polling = False
        self._looks = 0
        self._target: int | None = None
        self._actual: int | None = None
        self._heard: object = None

    def set_target(self, size: int) -> None:
        """``balloon``: QEMU's value is the memory that the guest keeps."""
        self._target = size
        self._machine.execute("balloon", value=size)

    def look(self, *, drives: bool) -> Look:
        """``query-balloon``, the device's property ``guest-stats``, and ``query-blockstats``."""
        if not self._polling:
            self._machine.execute("qom-set", path=_PATH, property="guest-stats-polling-interval", value=STATISTICS_SECONDS)
            self._polling = True
        heard = self._machine.heard(_MOVED)
        still = self._actual is not None and self._target in (None, self._actual) and heard == self._heard and self._looks % _AGAIN != 0
        asked: list[tuple[str, dict[str, Any] | None]] = [
            ("qom-get", {"path": _PATH, "property": "guest-stats"}),
            *([] if still else [("query-balloon", None)]),
            *([("query-blockstats", None)] if drives else []),
        ]
        answers = dict(zip((command for command, _ in asked), self._machine.execute_all(asked), strict=True))
        if "query-balloon" in answers:
            self._actual, self._heard = int(answers["query-balloon"]["actual"]), heard
        self._looks += 1
        assert self._actual is not None
        counted = [{key: one[key] for key in _OF_A_DRIVE if key in one} for one in answers.get("query-blockstats", ())]
        return Look(self._actual, answers["qom-get"], counted)


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
