"""Live display of ``pgherd balloon demo``: memory, balloon and throughput of both servers."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgherd.cli.balloon_demo import SIDES, DemoOptions, DemoSample, ServerSample
from pgherd.model.units import format_bytes
from pgherd.runner.progress import RunObserver

WIDTH = 40
"""Width of a bar in characters."""
_LINE_INTERVAL_S = 2.0
"""Interval in seconds of lines, if the output is no terminal."""


class DemoView(RunObserver):
    """Live display on a terminal. Other outputs get a line every two seconds."""

    def __init__(self, console: Console, demo: DemoOptions) -> None:
        self._console, self._demo = console, demo
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._last = -_LINE_INTERVAL_S

    def __enter__(self) -> DemoView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def setup(self, what: str) -> None:
        if self._live is not None:
            self._live.update(Text(f"{what} …", style="dim"), refresh=True)
        else:
            self._console.print(f"{what} …", markup=False)

    def note(self, text: str) -> None:
        if self._live is None or text.startswith("warning"):
            self._console.print(text, markup=False)

    def show(self, sample: DemoSample) -> None:
        if self._live is not None:
            self._live.update(picture(self._demo, sample), refresh=True)
        elif sample.at - self._last >= _LINE_INTERVAL_S:
            self._last = sample.at
            self._console.print(line(sample), markup=False, soft_wrap=True)


def bar(server: ServerSample, width: int = WIDTH) -> Text:
    """Draw shared_buffers as a bar: in memory, unused, and in the balloon."""
    balloon = round(width * server.ballooned / server.pool)
    resident = min(width - balloon, round(width * server.resident / server.pool))
    text = Text("█" * resident, style="green")
    text.append("░" * (width - balloon - resident), style="dim")
    text.append("·" * balloon, style="magenta")
    return text


def picture(demo: DemoOptions, sample: DemoSample) -> Group:
    """Draw both servers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("server", "", "shared_buffers"):
        table.add_column(name, no_wrap=True)
    for name in ("in memory", "balloon", "tps"):
        table.add_column(name, justify="right", no_wrap=True, min_width=9)
    table.add_column("state", overflow="ellipsis", no_wrap=True)
    for side in SIDES:
        server = sample.sides[side]
        busy = Text("busy", style="bold yellow") if side == sample.busy else Text("idle", style="dim")
        sizes = (format_bytes(server.resident), format_bytes(server.ballooned), f"{server.tps:,.0f}")
        table.add_row(side, busy, bar(server), *sizes, Text(server.state))
    limited = next((server for server in sample.sides.values() if server.available is not None and server.limit is not None), None)
    memory = f"{format_bytes(limited.available or 0)} available of {format_bytes(limited.limit or 0)}, " if limited is not None else ""
    head = f"phase {sample.phase} of {demo.phases}, {sample.at:.0f} s; {memory}overcommitted by {demo.overcommitted:g} %"
    legend = Text("█ in memory  ░ unused  · in the balloon      Ctrl-C ends the demonstration", style="dim")
    return Group(Text(head), table, legend)


def line(sample: DemoSample) -> str:
    """Return the state of both servers as one line."""
    servers = [
        f"{side} {'busy' if side == sample.busy else 'idle'}: {server.tps:,.0f} tps, {format_bytes(server.resident)} in memory, "
        f"balloon {format_bytes(server.ballooned)}"
        for side, server in sample.sides.items()
    ]
    return f"{sample.at:5.1f} s  " + "; ".join(servers)
