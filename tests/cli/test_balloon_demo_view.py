"""The demo's picture."""

from __future__ import annotations

from rich.console import Console

from pgherd.cli import balloon_demo_view
from pgherd.cli.balloon_demo import MB, DemoOptions, DemoSample, ServerSample


def side(ballooned: int) -> ServerSample:
    return ServerSample(1234.0, 400 * MB, ballooned, 300 * MB - ballooned, 50 * MB, 60 * MB, 512 * MB, "memory is short", "")


MOMENT = DemoSample(3.5, 1, "a", {"a": side(0), "b": side(200 * MB)})


def test_a_pool_as_a_bar():
    text = balloon_demo_view.bar(side(100 * MB), width=40).plain
    assert text == "█" * 20 + "░" * 10 + "·" * 10
    full = ServerSample(0, 100, 100, 100, None, None, None, "", "")
    assert len(balloon_demo_view.bar(full, width=10).plain) == 10, "never wider than the pool"


def test_the_picture_and_the_line():
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(balloon_demo_view.picture(DemoOptions(), MOMENT))
    said = console.export_text()
    assert "phase 1 of 4" in said and "200 MB" in said and "busy" in said and "memory is short" in said
    assert "b idle: 1,234 tps, 100 MB in memory, balloon 200 MB" in balloon_demo_view.line(MOMENT)
