"""The node Protocol: everything that pgherd does on a machine goes through these few calls.

Samplers, runtimes and PostgreSQL are written against it once; a VM guest or a cluster's agent implements it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

CANNOT_RUN = (126, 127)
"""Exit codes of a command whose program is not there, or cannot be executed, on nodes that start it by way of a shell (POSIX, 2.8.2)."""


@dataclass(frozen=True)
class Command:
    """A process to be started.

    ``join`` lists files (``cgroup.procs``) into which the process writes itself before it execs, so that everything it
    charges is charged to its group. ``cpus`` is its affinity. ``user`` is the account it runs as (None: as we do), with
    the further ``groups`` (names or numbers).
    ``death_signal`` (a name such as KILL or QUIT) reaches it when the node dies. ``stdout`` and ``stderr`` are file
    paths, opened for appending; None throws output away (``run`` captures it instead). ``env`` is added to a clean
    environment (PATH, LC_ALL=C, TZ=UTC) rather than to ours.
    """

    argv: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    join: tuple[str, ...] = ()
    cpus: tuple[int, ...] | None = None
    user: str | None = None
    death_signal: str = "KILL"
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Completed:
    """A finished command: exit code (negative: killed by that signal), its output, and its CPU in seconds."""

    code: int
    out: str
    err: str
    cpu: float = 0.0


class Process(Protocol):
    """A running process of a node."""

    pid: int

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code; raises TimeoutError."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        ...

    @property
    def cpu_seconds(self) -> float | None:
        """CPU of the process and its reaped children; None until it has ended."""
        ...


@dataclass(frozen=True)
class Source:
    """Something that a sampler reads once per tick, raw.

    ``kind`` 'file': ``where`` is a path. 'tree': ``where`` is a pid, and the raw text is the ``/proc/PID/stat`` line of
    that process and of each of its children, one per line. 'sql': ``where`` is a conninfo and ``statement`` a query whose rows are
    spooled as JSON (a list of lists). ``entity`` says what it describes (``host``, ``container:db01``,
    ``server:db01/pg``, ``driver:TARGET``, ``pgherd``). ``every`` reads it on each n-th tick only (always on the first
    and last).
    """

    sampler: str
    entity: str
    kind: Literal["file", "tree", "sql"]
    where: str
    statement: str = ""
    every: int = 1
    tag: str = ""


class Sampling(Protocol):
    """A sampling loop that runs on the node."""

    def add(self, sources: Sequence[Source]) -> None:
        """Read these too from now on (a driver's pid is known only once it runs). All sources are read once at once, beside the
        ticks, so that ``add(())`` marks an instant: the borders of a window then need no interpolation."""
        ...

    def backends(self) -> dict[str, int]:
        """Conninfo → pid of the server process that answers its SQL sources (its CPU is part of sampling's cost)."""
        ...

    def stop(self) -> None:
        """Take a last sample, flush the spool and end the loop; raises OSError when the spool could not be written."""
        ...


class Clock(Protocol):
    """Converts instants between the clock of a node that is a guest and the host's, by what has been measured so far."""

    def host(self, at: float) -> float:
        """The host's clock at an instant of the guest's."""
        ...

    def guest(self, at: float) -> float:
        """The guest's clock at an instant of the host's."""
        ...


class Node(Protocol):
    """One machine. Calls that fail raise OSError (files, processes) or psycopg.Error (SQL), with the cause in them."""

    name: str

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        ...

    def read(self, path: str) -> bytes:
        """A whole file."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Sorted names in a directory."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write a file or a kernel knob in one write call; a new file gets mode 0600."""
        ...

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        """Make a directory and its parents; ``user`` becomes its owner."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory (a cgroup)."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it; nothing happens if it is gone."""
        ...

    def spawn(self, command: Command) -> Process:
        """Start a process and return at once. Call it from a thread that outlives the process: the kernel sends the
        death signal when the spawning *thread* ends."""
        ...

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        """Run a command to its end and capture its output; raises TimeoutError after killing it."""
        ...

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit on a kept connection and return its rows."""
        ...

    def disconnect(self, conninfo: str) -> None:
        """Close the kept connection, if there is one."""
        ...

    def sample(self, sources: Sequence[Source], spool: str, period: float = 1.0) -> Sampling:
        """Start reading the sources once per period into the spool file; returns at once.

        The spool holds one JSON document per line: ``{"t": seconds, "i": index of source, "raw": text}`` for a
        reading, and ``{"sources": [[sampler, entity, kind, where, tag], …], "first": index}`` whenever sources are
        added; ``raw`` null with ``"error"`` where a reading failed. Lines are flushed once per tick.
        """
        ...
