"""Live state of a run: ``live.json`` in its directory, and the files that grow during a trial.

**Format.** ``live.json`` (``LiveState``) is replaced by rename at the start and end of each setup step, trial and phase, so a reader never
gets an incomplete state. It is not synced, because disk writes would disturb the measurement. It may be missing after a crash of the
machine. It is removed at the end of the run. A killed run leaves it behind, and ``RunDirectory.alive`` distinguishes the two cases.
All instants are seconds since the epoch.

Other files during a trial:

- ``trials/NNNN.partial/spool.jsonl``: the samples, one per line (format: ``pgherd.node.protocol.Node.sample``), flushed once a second.
  ``pgherd.metrics.spool.Spool(Lines(file))`` yields the added readings at each iteration;
- the directory ``LiveTrial.output``: output of the drivers in ``PHASE/TARGET/stdout`` and ``…/stderr``. PHASE is the phase's number with
  two digits, TARGET the target's name with dots instead of slashes. It is readable for the user that runs pgherd.

A run on several hosts has less: every few seconds, part of each host's readings and of its drivers' progress, on the clock of the host that
controls the run (``pgherd.distributed.cluster_backend``). The drivers' output is then in ``trials/NNNN.partial/told``.

Finished trials and their checks are in ``trials/NNNN/trial.json``. The run's state and answer are in ``run.json``. Watching a run only
reads files and does not contact its process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from pgherd.model.base import Model
from pgherd.node import files
from pgherd.node.files import Directory, UnsafeFileError

FILE: Final = "live.json"
SCHEMA: Final = "pgherd/live/1"
SPOOL: Final = "spool.jsonl"
TOLD: Final = "told"
_MAX_STATE_BYTES = 16 * 2**20
_CHUNK_BYTES = 4 * 2**20
_MAX_BYTES_AT_ONCE = 64 * 2**20
"""Maximum size of a file's part that one iteration of a reader reads. A longer part is read by later iterations."""


class LivePhase(Model):
    """A planned phase: warm-up and measured period in seconds, and the driver of each target under load.

    With ``until`` 'drivers' the phase ends with its drivers, after ``seconds`` at the latest.
    """

    name: str
    warmup: float
    seconds: float
    until: Literal["clock", "drivers"] = "clock"
    loads: dict[str, str] = Field(default_factory=dict, description="target → driver")
    words: str = Field("", description="the loads as text, such as '4 × pgbench select-only, 8 clients'")


class LiveContainer(Model):
    """Limits of a container and its host: ``vcpus`` in cores, ``memory`` in bytes. None means no limit."""

    vcpus: float | None = None
    memory: int | None = None
    host: str = "local"


class LiveTrial(Model):
    """The running trial.

    ``number`` is that of its directory. ``output`` is the directory of its drivers' output. ``hosts`` are the hosts that
    take part in it.
    """

    number: int
    point: dict[str, int | float | str]
    repeat: int
    reason: str
    begun: float
    phases: tuple[LivePhase, ...] = ()
    containers: dict[str, LiveContainer] = Field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    output: str | None = None


class LiveState(Model):
    """State of a running run.

    Attributes:
        step: current setup step, None during a phase.
        trials_remaining: proposed trials after the current one. The study may propose more.
        seconds_left: estimated time of those trials, None if unknown.
        overhead: seconds that a trial takes in addition to its planned time, None if unknown. A phase that ends with its
            drivers has no planned time.
        phase: index of the running phase.
        phase_begun: start of the phase's drivers and of its warm-up.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    schema_: Literal["pgherd/live/1"] = Field(SCHEMA, alias="schema")
    pid: int
    written: float
    step: str | None = None
    trials_remaining: int = 0
    seconds_left: float | None = 0.0
    overhead: float | None = None
    trial: LiveTrial | None = None
    phase: int | None = None
    phase_begun: float | None = None


def read_live(run: Path) -> LiveState | None:
    """Return the state in a run's directory, or None if there is none that this version can read."""
    try:
        return LiveState.model_validate_json(files.read_below(run, FILE, limit=_MAX_STATE_BYTES))
    except (OSError, ValidationError, UnsafeFileError):
        return None


def write_live(run: Path, state: LiveState) -> None:
    """Replace the state. Raises OSError, for example if the disk is full."""
    with Directory.open(os.path.realpath(run)) as directory:
        directory.write(FILE, state.model_dump_json(by_alias=True).encode(), sync=False)


def remove_live(run: Path) -> None:
    """Remove the state of a run that has ended, if it exists."""
    try:
        with Directory.open(os.path.realpath(run)) as directory:
            for name in (FILE, *(name for name in directory.names() if name.startswith(f".{FILE}."))):  # also of a killed process
                directory.remove(name)
    except (OSError, UnsafeFileError):
        return


def spool_file(run: Path, trial: int) -> Path:
    """Return the path of the running trial's spool. The file is removed at the end of the trial."""
    return run / "trials" / f"{trial:04d}.partial" / SPOOL


def reported_dir(run: Path, trial: int) -> Path:
    """Return the directory for the progress of other hosts' drivers during the trial."""
    return run / "trials" / f"{trial:04d}.partial" / TOLD


def output_dir(trial: LiveTrial, phase: int, target: str) -> Path | None:
    """Return the output directory of the target's driver in a phase (an index), or None if it is unknown."""
    return None if trial.output is None else Path(trial.output) / output_name(phase, target)


def output_name(phase: int, target: str) -> str:
    """Return the driver's directory relative to that of the trial's drivers. ``phase`` is an index."""
    return f"{phase:02d}/{target.replace('/', '.')}"


class TailReader:
    """Lines of a growing file. Each iteration yields the complete lines added since the previous one."""

    def __init__(self, path: Path, *, recent: int | None = None, always: bytes | None = None) -> None:
        """Prepare to read.

        Args:
            path: the file. It need not exist yet, and may be removed at any time.
            recent: number of bytes at the end to read in the first iteration. None reads the complete file.
            always: prefix of lines that are also read from the part before.
        """
        self._path, self._recent, self._always = path, recent, always
        self._offset = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield complete lines without their line ends. An incomplete last line follows in a later iteration.

        A link or a special file yields nothing, and neither does a line of several megabytes.
        """
        try:
            with files.open_regular(self._path) as number, open(number, "rb", closefd=False) as file:
                if self._recent is not None and self._offset == 0:
                    yield from self._skip(file, os.fstat(number).st_size - self._recent)
                end = self._offset + _MAX_BYTES_AT_ONCE
                while self._offset < end:
                    file.seek(self._offset)
                    complete, newline, _ = file.read(_CHUNK_BYTES).rpartition(b"\n")
                    if not newline:
                        return
                    self._offset += len(complete) + 1
                    yield from complete.split(b"\n")
        except (OSError, UnsafeFileError):
            return

    def _skip(self, file: BinaryIO, until: int) -> Iterator[bytes]:
        """Skip to the first line that starts at or after the offset. Yields the skipped lines with the prefix ``always``.

        Of a very large file the middle is not read.
        """
        head = min(until, _MAX_BYTES_AT_ONCE)
        while self._offset < head and (line := file.readline(_CHUNK_BYTES)).endswith(b"\n"):
            self._offset += len(line)
            if self._always is not None and line.startswith(self._always):
                yield line[:-1]
        if head < until:
            file.seek(until)
            self._offset = until + len(file.readline(_CHUNK_BYTES))
