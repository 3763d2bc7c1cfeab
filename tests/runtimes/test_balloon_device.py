import json
from concurrent.futures import Future
from pathlib import Path

import pytest

from pgherd.metrics.guests import QEMU_BLOCKSTATS
from pgherd.node.protocol import SampleSource
from pgherd.runtimes.balloon_device import QemuBalloon, statistics_of

CAPTURED = Path(__file__).parent.parent / "fixtures" / "qemu"


class Questions:
    """Answers as QEMU did, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.actual, self.moved = 268435456, 0

    def heard(self, event: str) -> object:
        return self.moved if event == "BALLOON_CHANGE" else None

    def answer(self, command: str, arguments: dict[str, object]) -> object:
        self.asked.append((command, arguments))
        if command == "query-balloon":
            return {"actual": self.actual}
        if command == "qom-get":
            return json.loads((CAPTURED / "guest-stats.json").read_text())
        if command == "query-blockstats":
            return json.loads((CAPTURED / "query-blockstats.json").read_text())
        return {}

    def ask(self, commands, then):
        asked = Future()
        asked.set_result(then([self.answer(command, arguments or {}) for command, arguments in commands]))
        return asked


def test_speaks_qmp() -> None:
    qemu = Questions()
    balloon = QemuBalloon(qemu)
    found = balloon.poll(drives=False).result()
    assert found.actual == 268435456 and statistics_of(found.statistics) is not None and found.drives == []
    assert balloon.set_target(134217728).result() == 134217728
    drives = balloon.poll(drives=True).result().drives
    path = "/machine/peripheral/balloon0"
    assert qemu.asked == [
        ("qom-set", {"path": path, "property": "guest-stats-polling-interval", "value": 1}),
        ("qom-get", {"path": path, "property": "guest-stats"}),
        ("query-balloon", {}),
        ("balloon", {"value": 134217728}),
        ("qom-get", {"path": path, "property": "guest-stats"}),
        ("query-balloon", {}),
        ("query-blockstats", {}),
    ]
    whole = (CAPTURED / "query-blockstats.json").read_text()
    kept, source = json.dumps(drives), SampleSource("qemu_blockstats", "guest:a", "file", "a")
    assert len(kept) < 0.6 * len(json.dumps(json.loads(whole))), "it is written every second"
    assert list(QEMU_BLOCKSTATS.parse(kept, source)) == list(QEMU_BLOCKSTATS.parse(whole, source)) != [], (
        "and nothing that is read of it is missing"
    )


def test_a_balloon_that_rests_is_not_asked_for_its_size_every_second() -> None:
    qemu = Questions()
    balloon = QemuBalloon(qemu)

    def asked(looks: int = 1) -> int:
        before = len(qemu.asked)
        assert {balloon.poll(drives=False).result().actual for _ in range(looks)} == {qemu.actual}, "what it is said to be it is"
        return sum(command == "query-balloon" for command, _ in qemu.asked[before:])

    assert asked() == 1 and asked(9) == 0
    assert asked() == 1 and asked(4) == 0, "now and then it is asked all the same"
    qemu.actual, qemu.moved = 200000000, 1
    assert asked() == 1 and asked() == 0, "it was told to have moved"
    balloon.set_target(150000000)
    assert asked(3) == 3, "it is on its way"
    qemu.actual = 150000000
    assert asked() == 1 and asked() == 0
    qemu.actual, qemu.moved = 160000000, 2
    assert asked(3) == 3, "it is not where it was sent"


def test_reads_a_real_answer() -> None:
    raw = json.loads((CAPTURED / "guest-stats.json").read_text())
    drives = json.loads((CAPTURED / "query-blockstats.json").read_text())
    told = statistics_of(raw, drives)
    assert told is not None
    assert told.at == raw["last-update"] and told.total == raw["stats"]["stat-total-memory"]
    assert told.free is not None and told.available is not None and told.total is not None
    assert 0 < told.free <= told.total and 0 < told.available <= told.total
    assert told.reads == sum(one["stats"]["rd_bytes"] for one in drives)


def test_a_guest_that_has_told_nothing_yet() -> None:
    nothing = json.loads((CAPTURED / "guest-stats-before.json").read_text())
    assert statistics_of(nothing) is None
    told = statistics_of(nothing | {"last-update": 5})
    assert told is not None and told.free is None and told.total is None and told.reads is None


@pytest.mark.parametrize("raw", [{}, {"last-update": 1}, {"last-update": 1, "stats": 7}, {"last-update": None, "stats": {}}])
def test_refuses_other_answers(raw) -> None:
    with pytest.raises(ValueError, match="not a guest's statistics"):
        statistics_of(raw)
