"""Protocols of a node (the calls to access one machine) and of data loaders.

Samplers, runtimes and PostgreSQL use these Protocols. Some modules of pgherd.host (journal, holds, reservation and
others) also access this host directly. Implementations:

- ``Node``: ``LocalNode`` (pgherd.node.local) for this host, ``GuestNode`` (pgherd.runtimes.vm.guest_node) for a guest.
- ``Process``: ``LocalProcess`` (pgherd.node.process), ``GuestProcess`` (guest_node).
- ``SamplingLoop``: ``LocalSampling`` (pgherd.node.sampling), ``GuestSampler`` (guest_node).
- ``ClockConverter``: ``GuestClock`` (pgherd.runtimes.vm.guest_spool).
- ``DataLoader``: the loaders in pgherd.workloads.
- ``LoaderServer``: ``Instance`` (pgherd.postgres.instance).

No Node represents another host of a cluster. The agent of each host (pgherd.distributed.agent) uses its LocalNode there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pgherd.node.files import MAX_BYTES, MAX_END_BYTES, FileEnd

CANNOT_RUN = (126, 127)
"""Exit codes for a missing or non-executable program, on nodes that start it by a shell (POSIX, 2.8.2)."""


@dataclass(frozen=True)
class Command:
    """A process to start.

    Attributes:
        env: variables in addition to a clean environment (PATH, LC_ALL=C, TZ=UTC).
        join: files (``cgroup.procs``) into which the process writes itself before exec, so that its group is charged.
        cpus: affinity.
        sched_batch: whether it runs under SCHED_BATCH (sched(7)). Its children inherit this.
        user: operating system user, or None for that of pgherd.
        end_session: whether the rest of its session is killed when it ends. Its processes are in a session of their own.
        groups: further groups of ``user``, as names or numbers.
        death_signal: signal (a name such as KILL or QUIT) at the end of the node's process.
        stdout: file to append to, or None for no output. ``run`` captures the output instead.
        stderr: as ``stdout``.
        open_files: least soft limit of open files. A lower one of this process is raised for the command.
        can_be_called_off: whether ``run`` ends it when the node's work is called off. True for long steps that undo nothing.
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
    end_session: bool = False
    sched_batch: bool = False
    open_files: int = 0
    can_be_called_off: bool = False


@dataclass(frozen=True)
class Completed:
    """A finished command: exit code (negative: signal), output, CPU in seconds."""

    code: int
    out: str
    err: str
    cpu: float = 0.0


class Process(Protocol):
    """A process that a node started."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code (negative: signal number), or None while the process runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises TimeoutError after ``timeout`` seconds.
        """
        ...

    def signal(self, number: int) -> None:
        """Send a signal; without effect after the end."""
        ...

    @property
    def cpu_seconds(self) -> float | None:
        """User and system CPU of the process and its reaped children.

        The value is None before its end.
        """
        ...


@dataclass(frozen=True)
class SampleSource:
    """Input of a sampler, stored without parsing.

    Attributes:
        entity: subject of the readings: ``host``, ``container:db01``, ``server:db01/pg``, ``driver:TARGET``, ``pgherd``.
        kind: 'file': ``where`` is a path. 'tree': ``where`` is a pid. Its text has the ``/proc/PID/stat`` lines of that
            process and of its children. 'switches': ``where`` is a pid. Its text is the number of voluntary context
            switches (pgherd.node.switches). 'kernel-threads': CPU ticks by name (pgherd.node.kernel_threads). 'sql':
            ``where`` is a conninfo, and the text has the rows of ``statement`` as JSON (a list of lists). A guest has only
            'file' and 'tree' sources.
        every: interval in ticks. The first and the last tick always read the source.
        times: readings per tick, evenly spaced. Above 1 for 'sql' only. A reading is left out while the server has not answered.
    """

    sampler: str
    entity: str
    kind: Literal["file", "tree", "switches", "kernel-threads", "sql"]
    where: str
    statement: str = ""
    every: int = 1
    tag: str = ""
    times: int = 1


class SamplingLoop(Protocol):
    """A sampling loop that runs on the node."""

    def add(self, sources: Sequence[SampleSource]) -> None:
        """Add sources, and read all sources once between the ticks.

        ``add(())`` therefore marks an instant, so that the boundaries of a window need no interpolation.
        """
        ...

    def backends(self) -> dict[str, int]:
        """Return the pid of the server process per conninfo of SQL sources.

        Its CPU is a cost of sampling.
        """
        ...

    def stop(self) -> None:
        """Take a last sample, flush the spool and end the loop.

        Raises OSError if the spool was not writable.
        """
        ...


class ClockConverter(Protocol):
    """Converter between the clocks of a guest and of the host, from measurements."""

    def host(self, at: float) -> float:
        """Convert an instant of the guest's clock to the host's."""
        ...

    def guest(self, at: float) -> float:
        """Convert an instant of the host's clock to the guest's."""
        ...


class Node(Protocol):
    """One machine.

    Failed calls raise OSError (files, processes) or psycopg.Error (SQL) with the cause.
    """

    name: str

    def now(self) -> float:
        """Return the wall clock in seconds since the epoch."""
        ...

    def read(self, path: str) -> bytes: ...

    def read_untrusted(self, path: str, limit: int = MAX_BYTES) -> bytes:
        """Read a file in a directory that another user can change. It must be a regular file of at most ``limit`` bytes.

        Raises UnsafeFileError if it is not, or is a link to a file of somebody else.
        """
        ...

    def read_end(self, path: str, limit: int = MAX_END_BYTES) -> FileEnd:
        """Read the last ``limit`` bytes of a file that another user can write, such as a log. Raises as ``read_untrusted``."""
        ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        ...

    def write(self, path: str, data: bytes, *, user: str | None = None) -> None:
        """Write a file or a kernel setting in one write call; a new file gets mode 0600.

        With ``user``, who can change the directory, a new file of that user replaces what is there. No link is followed.
        """
        ...

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        """Create a directory and its parents, if missing.

        Mode and owner ``user`` apply to the last one. A directory for ``user`` is not created in a directory of another user
        (UnsafeFileError), who could exchange it for a link. Only the last directory of a path may belong to the servers' user.
        """
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory, such as a cgroup."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its contents, or a file; without effect if it does not exist."""
        ...

    def spawn(self, command: Command) -> Process:
        """Start a process without waiting.

        The calling thread must outlive the process, because the kernel sends the death signal at the end of the *thread*.
        """
        ...

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        """Run a command to its end and capture its output.

        After ``timeout``, kill it and raise TimeoutError.
        """
        ...

    def sql(self, conninfo: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit on a cached connection and return its rows."""
        ...

    def disconnect(self, conninfo: str) -> None:
        """Close the cached connection, if there is one."""
        ...

    def sample(self, sources: Sequence[SampleSource], spool: str, period: float = 1.0) -> SamplingLoop:
        """Start a loop that reads the sources into the spool, once per period (s).

        The spool has one JSON document per line. A reading is ``{"t": seconds, "i": index of source, "raw": text}``.
        A failed reading has ``raw`` null and ``"error"``. New sources are announced by
        ``{"sources": [[sampler, entity, kind, where, tag], …], "first": index}``. Lines are flushed once per tick.
        """
        ...


# ---- data loaders

Say = Callable[[str], None]
"""Receives a line at the start and at the end of each long step."""


def silent(line: str) -> None:
    """Ignore a progress line."""


class LoaderServer(Protocol):
    """A running server, as a loader needs it."""

    @property
    def node(self) -> Node: ...

    @property
    def bin(self) -> str:
        """Directory of psql and pgbench."""
        ...

    @property
    def socket_dir(self) -> str: ...

    @property
    def port(self) -> int:
        """Port, which is part of the socket's name."""
        ...

    @property
    def user(self) -> str:
        """Database user."""
        ...

    @property
    def account(self) -> str | None:
        """Operating system user of client programs."""
        ...


class DataLoader(Protocol):
    """Loader of the contents of one database, or of one of its schemas, for building data directory templates."""

    @property
    def database(self) -> str: ...

    @property
    def identity(self) -> str:
        """Name of the contents: workload, scale, and a hash of all other inputs.

        Equal identity means equal contents.
        """
        ...

    @property
    def size_estimate(self) -> int | None:
        """Expected size in bytes, or None if it is unknown before the load."""
        ...

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of PostgreSQL that the load requires. They are part of the identity."""
        ...

    def load(self, target: LoaderServer, say: Say = silent) -> None:
        """Fill the database, which exists and is empty; raises UsageError or TrialError."""
        ...
