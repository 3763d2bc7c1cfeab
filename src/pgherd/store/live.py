"""What a run tells of itself while it is being executed: ``live.json`` in its directory, and files that grow.

**The format.** ``live.json`` (``LiveState``) is replaced as a whole, by rename, each time that something begins or ends: a step of
setting up, a trial, a phase. So whoever reads it sees one state or the next, never half of one. It is not synced, since writing to
disk would be seen in what is measured; after a crash of the whole machine it may be missing. It is removed when the run has ended;
a killed run leaves it behind, and ``RunDirectory.alive`` tells the two apart. All instants are seconds since the epoch.

What else there is while a trial runs:

- ``trials/NNNN.partial/spool.jsonl``: the samples, a line each (format: ``pgherd.node.protocol.Node.sample``), flushed once a second;
  ``pgherd.metrics.spool.Spool(Lines(file))`` gives the readings that have been added each time that it is iterated anew;
- the directory ``LiveTrial.output``: what the drivers write, in ``PHASE/TARGET/stdout`` and ``…/stderr``, where PHASE is the phase's
  number as two digits and TARGET is the target's name with dots for slashes. It can be read by the account that runs pgherd.

Of a run on several hosts there is less: every few seconds, a part of what each host has read and what its drivers have told, on the
driver's clock (``pgherd.distributed.relay``). The drivers' output then lies in ``trials/NNNN.partial/told``.

Finished trials and their verdicts are in ``trials/NNNN/trial.json``, the run's state and answer in ``run.json``. Everything is only read:
watching a run needs no word with its process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from pgherd.model.base import Model

FILE: Final = "live.json"
SCHEMA: Final = "pgherd/live/1"
SPOOL: Final = "spool.jsonl"
TOLD: Final = "told"


class LivePhase(Model):
    """A planned phase: ramp-up and measured period in seconds, and the driver of each target under load. ``until`` 'drivers': it ends
    when they do, after ``seconds`` at the latest."""

    name: str
    ramp: float
    seconds: float
    until: Literal["clock", "drivers"] = "clock"
    loads: dict[str, str] = Field(default_factory=dict, description="target → driver")
    words: str = Field("", description="the loads in words, such as '4 × pgbench select-only, 8 clients'")


class LiveContainer(Model):
    """What a container is given: ``vcpus`` in cores, ``memory`` in bytes; None where it has no limit. ``host`` is where it lies."""

    vcpus: float | None = None
    memory: int | None = None
    host: str = "local"


class LiveTrial(Model):
    """The trial that is being run. ``number`` is its directory's; ``output`` the directory in which its drivers write; ``hosts`` those
    that take part in it."""

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
    """The state of a run that is being executed.

    ``step`` is what is being set up, None while a phase runs. ``trials_left`` and ``seconds_left`` are those of the trials after the
    present one, as far as they are proposed already: a study may propose more. ``overhead`` is what a trial takes beside its planned
    time (seconds; no time is planned for a phase that ends with its drivers). Both are None as long as nothing is known of it.
    ``phase`` is the index of the phase whose drivers were started at ``phase_begun``: its ramp-up begins then.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    schema_: Literal["pgherd/live/1"] = Field(SCHEMA, alias="schema")
    pid: int
    written: float
    step: str | None = None
    trials_left: int = 0
    seconds_left: float | None = 0.0
    overhead: float | None = None
    trial: LiveTrial | None = None
    phase: int | None = None
    phase_begun: float | None = None


def read_live(run: Path) -> LiveState | None:
    """The state in a run's directory; None where there is none, or none that this version can read."""
    try:
        return LiveState.model_validate_json((run / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_live(run: Path, state: LiveState) -> None:
    """Replace the state. Raises OSError (a full disk)."""
    temporary = run / f"{FILE}.tmp"
    temporary.write_bytes(state.model_dump_json(by_alias=True).encode())
    temporary.replace(run / FILE)


def remove_live(run: Path) -> None:
    """Remove the state, if there is one: the run has ended."""
    for name in (FILE, f"{FILE}.tmp"):
        with contextlib.suppress(OSError):
            (run / name).unlink()


def spool_file(run: Path, trial: int) -> Path:
    """Where the samples of the trial that runs are spooled; it is gone when the trial has ended."""
    return run / "trials" / f"{trial:04d}.partial" / SPOOL


def told_dir(run: Path, trial: int) -> Path:
    """Where what the drivers of other hosts tell is put while the trial runs."""
    return run / "trials" / f"{trial:04d}.partial" / TOLD


def output_dir(trial: LiveTrial, phase: int, target: str) -> Path | None:
    """Where the target's driver writes in this phase (an index); None where that is not known here."""
    return None if trial.output is None else Path(trial.output) / output_name(phase, target)


def output_name(phase: int, target: str) -> str:
    """The directory of a target's driver below that of the trial's drivers; ``phase`` is an index."""
    return f"{phase:02d}/{target.replace('/', '.')}"


class Lines:
    """The lines of a growing file: each iteration yields the whole ones that have been added since the one before."""

    def __init__(self, path: Path, *, recent: int | None = None, always: bytes | None = None) -> None:
        """Name the file; it need not be there yet, and may go at any time.

        Args:
            path: the file.
            recent: of what is there at the first iteration, read only about so many bytes at the end; None: all of it.
            always: what comes before them is looked through for lines that begin so.
        """
        self._path, self._recent, self._always = path, recent, always
        self._offset = 0

    def __iter__(self) -> Iterator[bytes]:
        """Whole lines without their ends; a last line that is still being written comes later."""
        try:
            with open(self._path, "rb") as file:
                if self._recent is not None and self._offset == 0:
                    yield from self._before(file, os.fstat(file.fileno()).st_size - self._recent)
                file.seek(self._offset)
                added = file.read()
        except OSError:
            return
        whole, end, _ = added.rpartition(b"\n")
        self._offset += len(whole) + len(end)
        yield from whole.split(b"\n") if end else ()

    def _before(self, file: BinaryIO, until: int) -> Iterator[bytes]:
        """Pass over what lies before, up to the first line that begins after that offset."""
        while self._offset < until and (line := file.readline()).endswith(b"\n"):
            self._offset += len(line)
            if self._always is not None and line.startswith(self._always):
                yield line[:-1]
