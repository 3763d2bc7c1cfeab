"""Protocol of a driver, with the values that it gets and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pgherd.model.load import Load
from pgherd.model.result import TargetResult


@dataclass(frozen=True)
class Endpoint:
    """Address of a driver's target. Fields that do not apply to the target are empty.

    Attributes:
        target: the target's name.
        bin: directory of the PostgreSQL programs.
        host: socket directory or host of a database; remote host of a link.
        port: port of a database, or of the remote end of a link.
        database: name of a database.
        user: user for the database.
        output: directory for output files, writable by the driver.
        scale: scale factor of a database.
        directory: directory of a volume.
    """

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
class DriverSpan:
    """Interval in which a driver ran, or ran in one slice, in seconds since the epoch."""

    first: float
    last: float


@dataclass(frozen=True)
class MeasuredWindow:
    """The measured window, seconds since the epoch.

    Attributes:
        start: its start.
        end: its end.
        stop: the instant at which the driver was stopped.
        turns: slices of the window in which the driver ran, if loads run in interleaved time slices.
        counted: seconds at the end of each slice that count for rates.
        lead: seconds at the start of each slice that never count, even if the slice is short.
    """

    start: float
    end: float
    stop: float
    turns: tuple[DriverSpan, ...] = ()
    counted: float = 0.0
    lead: float = 0.0


class Driver(Protocol):
    """A load generator: its command line, the signal that ends it early with a full report, and the parser of its output.

    Output files are in ``endpoint.output``: ``stdout``, ``stderr`` and the tool's files. ``span`` and ``result`` get their
    texts by file name. A missing or truncated text raises ValueError with the tool's last messages. ``exit_codes`` are
    those of a successful run, stopped by the signal or not.
    """

    name: str
    stop_signal: int
    exit_codes: tuple[int, ...]

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """Return the command line that runs this load for at most ``seconds``. Raises UsageError for an invalid load."""
        ...

    def span(self, files: Mapping[str, str], started: float, stop: float) -> DriverSpan:
        """Return the interval in which the driver generated load."""
        ...

    def result(self, load: Load, files: Mapping[str, str], started: float, window: MeasuredWindow, target: str) -> TargetResult:
        """Return the target's result over the common window. The caller adds ``client_cpu`` and ``raw``."""
        ...
