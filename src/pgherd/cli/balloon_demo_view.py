"""The live picture of ``pgherd balloon demo``: two pools, what of them is in the balloon, and how fast their servers are."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgherd.cli.balloon_demo import SIDES, DemoOptions, DemoSample, ServerSample
from pgherd.model.units import format_bytes
from pgherd.runner.watcher import Watcher

WIDTH = 40
"""Characters of a pool."""
_LINES_EVERY = 2.0
"""Seconds between two lines where there is no terminal."""


class DemoView(Watcher):
    """Live on a terminal, a line every two seconds elsewhere. A context manager."""

    def __init__(self, console: Console, demo: DemoOptions) -> None:
        """Show on this console (stderr)."""
        self._console, self._demo = console, demo
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._last = -_LINES_EVERY

    def __enter__(self) -> DemoView:
        """Begin to show."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def setup(self, what: str) -> None:
        """A step of setting up has begun."""
        if self._live is not None:
            self._live.update(Text(f"{what} …", style="dim"), refresh=True)
        else:
            self._console.print(f"{what} …", markup=False)

    def note(self, text: str) -> None:
        """A phase begins, or a warning."""
        if self._live is None or text.startswith("warning"):
            self._console.print(text, markup=False)

    def show(self, moment: DemoSample) -> None:
        """Draw one moment."""
        if self._live is not None:
            self._live.update(picture(self._demo, moment), refresh=True)
        elif moment.at - self._last >= _LINES_EVERY:
            self._last = moment.at
            self._console.print(line(moment), markup=False, soft_wrap=True)


def bar(now: ServerSample, width: int = WIDTH) -> Text:
    """A pool as a bar: its part in memory, its part that holds nothing, and the balloon."""
    balloon = round(width * now.ballooned / now.pool)
    resident = min(width - balloon, round(width * now.resident / now.pool))
    made = Text("█" * resident, style="green")
    made.append("░" * (width - balloon - resident), style="dim")
    made.append("·" * balloon, style="magenta")
    return made


def picture(demo: DemoOptions, moment: DemoSample) -> Group:
    """The whole picture."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("server", "", "its pool"):
        table.add_column(name, no_wrap=True)
    for name in ("in memory", "balloon", "tps"):
        table.add_column(name, justify="right", no_wrap=True, min_width=9)
    table.add_column("its balloon", overflow="ellipsis", no_wrap=True)
    for side in SIDES:
        now = moment.sides[side]
        busy = Text("busy", style="bold yellow") if side == moment.busy else Text("idle", style="dim")
        sizes = (format_bytes(now.resident), format_bytes(now.ballooned), f"{now.tps:,.0f}")
        table.add_row(side, busy, bar(now), *sizes, Text(now.state))
    known = next((now for now in moment.sides.values() if now.available is not None and now.limit is not None), None)
    memory = f"{format_bytes(known.available or 0)} available of {format_bytes(known.limit or 0)}, " if known is not None else ""
    head = (
        f"phase {moment.phase} of {demo.phases}, {moment.at:.0f} s; {memory}"
        f"which is {demo.overcommitted:g} % less than both containers' memory"
    )
    legend = Text("█ in memory  ░ nothing in it yet  · in the balloon      Ctrl-C ends it", style="dim")
    return Group(Text(head), table, legend)


def line(moment: DemoSample) -> str:
    """The same in one line."""
    words = [
        f"{side} {'busy' if side == moment.busy else 'idle'}: {now.tps:,.0f} tps, {format_bytes(now.resident)} in memory, "
        f"balloon {format_bytes(now.ballooned)}"
        for side, now in moment.sides.items()
    ]
    return f"{moment.at:5.1f} s  " + "; ".join(words)
