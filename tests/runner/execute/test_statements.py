"""The recorder with answers of a server. Real servers are in tests/it/test_observed_server.py."""

from __future__ import annotations

from typing import Any

import psycopg

from pgherd.metrics.sampler import ServerView
from pgherd.node.local import LocalNode
from pgherd.runner.execute.statements import StatementRecorder


class Servers(LocalNode):
    """Servers that answer with counters. One without the extension, and one that is lost after the first border."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.asked: list[str] = []

    def sql(self, conninfo: str, statement: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        self.asked.append(conninfo)
        if "pg_extension" in statement:
            return [] if conninfo == "plain" else [("public",)]
        if conninfo == "lost" and self.calls > 0:
            raise psycopg.OperationalError("the server closed the connection")
        if parameters:
            return [(name, "SELECT $1") for name in parameters[0]]
        return [("17", self.calls, 2.0 * self.calls, self.calls, 0, 0, 0), ("", 0, 0.0, 0, 0, 0, 0)]


def test_a_phase_has_the_increase_between_its_borders() -> None:
    node = Servers()
    views = [ServerView(name, name, 17, 0, waits=name != "private") for name in ("seen", "plain", "lost", "private")]
    recorder = StatementRecorder(node, views)
    recorder.mark(0)
    node.calls = 10
    recorder.mark(0)
    recorder.mark(1)
    found = recorder.stop()
    assert set(found[0]) == {"seen"} and found[1] == {}, "a phase with one border has no increase"
    view = found[0]["seen"]
    assert view.calls == 10 and view.time_ms == 20 and view.seconds > 0
    assert [(use.queryid, use.text, use.calls) for use in view.top] == [("17", "SELECT $1", 10)]
    assert "private" not in node.asked and node.asked.count("plain") == 1 and node.asked.count("lost") == 3
