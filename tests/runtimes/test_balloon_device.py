import json
from pathlib import Path

import pytest

from pgherd.runtimes.balloon_device import QemuBalloon, statistics_of

CAPTURED = Path(__file__).parent.parent / "fixtures" / "qemu"


class Machine:
    """Answers as QEMU did, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, object]]] = []

    def execute(self, command: str, /, **arguments: object) -> object:
        self.asked.append((command, arguments))
        if command == "query-balloon":
            return {"actual": 268435456}
        if command == "qom-get":
            return json.loads((CAPTURED / "guest-stats.json").read_text())
        if command == "query-blockstats":
            return json.loads((CAPTURED / "query-blockstats.json").read_text())
        return {}

    def execute_all(self, commands):
        return [self.execute(command, **(arguments or {})) for command, arguments in commands]


def test_speaks_qmp() -> None:
    machine = Machine()
    balloon = QemuBalloon(machine)
    found = balloon.look(drives=False)
    assert found.actual == 268435456 and statistics_of(found.statistics) is not None and found.drives == []
    balloon.set_target(134217728)
    assert isinstance(balloon.look(drives=True).drives[0], dict)
    path = "/machine/peripheral/balloon0"
    assert machine.asked == [
        ("qom-set", {"path": path, "property": "guest-stats-polling-interval", "value": 1}),
        ("query-balloon", {}),
        ("qom-get", {"path": path, "property": "guest-stats"}),
        ("balloon", {"value": 134217728}),
        ("query-balloon", {}),
        ("qom-get", {"path": path, "property": "guest-stats"}),
        ("query-blockstats", {}),
    ]


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
