"""What the demo shows, its picture, and what it sums up. tests/it/test_balloon.py runs it."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from pgherd.cli import balloon_demo
from pgherd.cli.balloon_demo import MB, DemoLog, DemoOptions, DemoSample, ServerSample
from pgherd.model.errors import UsageError


def side(tps: float, ballooned: int = 0) -> ServerSample:
    return ServerSample(tps, 384 * MB, ballooned, 100 * MB, 50 * MB, 60 * MB, 512 * MB, "nothing to do", "")


def test_sizes_follow_from_the_containers():
    demo = DemoOptions(memory=512 * MB, overcommitted=30)
    assert (demo.pool, demo.host) == (384 * MB, int(1024 * MB * 0.7)) and demo.scale == 20


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory": 100 * MB}, "--memory 100 MB is too small"),
        ({"overcommitted": 60}, "--overcommit 60 is not a percentage from 0 to 55"),
        ({"phase": 1}, "--phase-length 1 s is too short"),
        ({"phases": 0}, "--phases 0 and --clients 4 must both be at least 1"),
    ],
)
def test_what_cannot_be_shown_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        DemoOptions(**given)


def test_phases_are_summed_up():
    told = DemoLog(DemoOptions(phase=10, phases=2), "15.1")
    for number in range(1, 3):
        busy = "ab"[number - 1]
        for second in range(1, 11):
            rate = 100.0 * second
            sides = {name: side(rate if name == busy else 20.0, ballooned=0 if name == busy else second * MB) for name in "ab"}
            told.moments.append(DemoSample((number - 1) * 10 + second, number, busy, sides))
    first, second = told.phases()
    assert (first["busy"], first["early_tps"], first["late_tps"]) == ("a", 200, 800)
    assert second["ballooned"] == {"a": 10 * MB, "b": 0}
    assert json.loads(json.dumps(told.document()))["finished"] is False


def test_nothing_seen_is_nothing_said():
    assert DemoLog(DemoOptions(), "15.1").phases() == []


def shown_side(ballooned: int) -> ServerSample:
    return ServerSample(1234.0, 400 * MB, ballooned, 300 * MB - ballooned, 50 * MB, 60 * MB, 512 * MB, "memory is short", "")


MOMENT = DemoSample(3.5, 1, "a", {"a": shown_side(0), "b": shown_side(200 * MB)})


def test_a_pool_as_a_bar():
    text = balloon_demo.bar(shown_side(100 * MB), width=40).plain
    assert text == "█" * 20 + "░" * 10 + "·" * 10
    full = ServerSample(0, 100, 100, 100, None, None, None, "", "")
    assert len(balloon_demo.bar(full, width=10).plain) == 10, "never wider than the pool"


def test_the_picture_and_the_line():
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(balloon_demo.picture(DemoOptions(), MOMENT))
    said = console.export_text()
    assert "phase 1 of 4" in said and "200 MB" in said and "busy" in said and "memory is short" in said
    assert "b idle: 1,234 tps, 100 MB in memory, balloon 200 MB" in balloon_demo.sample_line(MOMENT)
