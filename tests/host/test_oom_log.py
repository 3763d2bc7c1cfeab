from pathlib import Path

import pytest

from pgherd.host import oom_log
from pgherd.host.oom_log import Victim, parse
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed

CAPTURED = (Path(__file__).parent.parent / "fixtures/host/dmesg-oom").read_text()


class LogNode(LocalNode):
    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        assert tuple(command.argv) == ("dmesg", "--raw")
        return Completed(self.code, CAPTURED if self.code == 0 else "", "")

    def read(self, path: str) -> bytes:
        return b"27000.00 50000.00\n" if path == "/proc/uptime" else super().read(path)

    def now(self) -> float:
        return 1_000_027_000.0


def test_who_when_and_at_whose_limit() -> None:
    assert parse(CAPTURED, 1_000_000_000.0) == [
        Victim(pytest.approx(1_000_026_255.888452), "python3", 14817, "/pgherd-x/db1", "/pgherd-x"),
        Victim(pytest.approx(1_000_026_300.5), "postgres", 7690, "/pgherd-x/db2", "/pgherd-x/db2"),
        Victim(pytest.approx(1_000_026_400.25), "stress", 99, "/user.slice", ""),
    ]


def test_only_what_came_since() -> None:
    assert [one.pid for one in oom_log.victims(LogNode(), 1_000_026_290.0)] == [7690, 99]
    assert oom_log.victims(LogNode(code=1), 0.0) == [], "not ours to read"


def test_other_lines_say_nothing() -> None:
    assert parse("", 0) == []
    assert parse("<6>[1.0] something oom-kill: pid=1\n<6>[2.0] oom-kill:constraint=X,pid=abc\n", 0) == []
