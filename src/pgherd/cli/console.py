"""The terminal: all output of all verbs except documents and scripts. Foreign text cannot control it.

Texts come from run directories, servers, guests and other hosts. A console prints them without control characters, in tables and in
progress bars too, and reads no markup in them.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from pgherd.model.text import clean


class CleanConsole(Console):
    """Console that prints each text as it is, except for control characters."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Print nothing more to a closed pipe. Raise BrokenPipeError for an answer, but not for progress, which is best effort."""
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does. Only segments of rich itself, such as the movement of the cursor, contain control codes."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                yield Segment(clean(segment.text), segment.style)
