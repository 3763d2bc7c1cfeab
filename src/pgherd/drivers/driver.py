"""What a driver is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pgherd.model.load import Load
from pgherd.model.result import TargetResult


@dataclass(frozen=True)
class Endpoint:
    """Where a driver finds its target: a database's address (socket directory or host, port, name, user) and the PostgreSQL
    bin directory; a volume's ``directory``; a link's far end (host, port); and the directory (writable by the driver) for its
    output files. What a target does not have is empty."""

    target: str
    bin: str
    host: str
    port: int
    database: str
    user: str
    output: str
    scale: int = 1
    directory: str = ""


@dataclass(frozen=True)
class Span:
    """Between which instants a driver ran, as its own output shows, or went on."""

    first: float
    last: float


@dataclass(frozen=True)
class Window:
    """The measured window, wall-clock seconds; ``stop`` is the instant at which the driver was told to end. ``turns`` are those spans of
    it in which the driver went on, if loads took turns: the last ``counted`` seconds of each count for rates, and nothing of its first
    ``lead`` seconds, however short it came to be."""

    start: float
    end: float
    stop: float
    turns: tuple[Span, ...] = ()
    counted: float = 0.0
    lead: float = 0.0


class Driver(Protocol):
    """A tool: how to call it, how to end it early with a full report, how to read what it wrote.

    Output files are named after ``endpoint.output``: ``stdout``, ``stderr`` and what the tool itself writes. ``span``
    and ``result`` take those files' texts by name; a missing or truncated text raises ValueError with the tool's last
    words. ``exit_codes`` are those of a run that went well, ended by the signal or not.
    """

    name: str
    stop_signal: int
    exit_codes: tuple[int, ...]

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """The command line that runs this load for at most ``seconds``."""
        ...

    def span(self, files: Mapping[str, str], started: float, stop: float) -> Span:
        """Between which instants the driver made load."""
        ...

    def result(self, load: Load, files: Mapping[str, str], started: float, window: Window, target: str) -> TargetResult:
        """The target's result over the common window."""
        ...
