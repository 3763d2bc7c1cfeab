"""Two runs on one host at once: each reserves its budget, and one that does not fit beside the live others is refused.

A reservation is a file ``STATE/reservations/RUN-PID.json`` that its owner keeps locked while it lives; the kernel
drops the lock however the owner ends. Runs of different users have different state directories and do not see each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

from pydantic import ValidationError

from pgherd.host.journal import locked
from pgherd.model.base import Model
from pgherd.model.errors import CapabilityError
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes

_DIRECTORY = "reservations"
_LOCK = ".lock"


class Reservation(Model):
    """A run's budget: ``cores`` and ``memory`` (bytes); None is the whole host.

    ``cpus`` are CPUs of its own, as many as the cores rounded up, disjoint from those of other runs while there are
    enough; None when the whole host is reserved.
    """

    run: str
    pid: int
    cores: float | None
    memory: int | None
    cpus: tuple[int, ...] | None = None

    def budget(self) -> str:
        """``2 cores and 4 GB``."""
        cores = "all cores" if self.cores is None else f"{self.cores:g} core{'' if self.cores == 1 else 's'}"
        return f"{cores} and {'all memory' if self.memory is None else format_bytes(self.memory)}"


@contextlib.contextmanager
def reserve(
    state_dir: Path, run: str, cores: float | None, memory: int | None, facts: HostFacts, cpus: Sequence[int] | None = None
) -> Iterator[Reservation]:
    """Hold a budget for the time of the ``with`` block.

    ``cpus`` are those to choose from (default: all that this process may use). Raises CapabilityError when the budget
    is more than the host has, or does not fit beside the live others.
    """
    available = tuple(cpus) if cpus is not None else tuple(sorted(os.sched_getaffinity(0)))
    if cores is not None and cores > facts.cores:
        raise CapabilityError(f"{cores:g} cores were asked for, but this host has {facts.cores:g} to use; give a smaller --cores")
    if memory is not None and memory > facts.memory:
        raise CapabilityError(
            f"{format_bytes(memory)} of memory were asked for, but this host has {format_bytes(facts.memory)}; give a smaller --memory"
        )
    directory = state_dir / _DIRECTORY
    path = directory / f"{run}-{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(directory / _LOCK):
            others = _live(directory)
            _check(run, cores, memory, facts, others)
            mine = Reservation(run=run, pid=os.getpid(), cores=cores, memory=memory, cpus=_choose(cores, available, others))
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(number, fcntl.LOCK_EX)
            os.write(number, mine.model_dump_json().encode())
    except OSError as error:
        raise CapabilityError(
            f"the reservation can't be written to {directory}: {error.strerror}; set XDG_STATE_HOME to a directory that can be written"
        ) from error
    try:
        yield mine
    finally:
        path.unlink(missing_ok=True)
        os.close(number)


def live(state_dir: Path) -> list[Reservation]:
    """Reservations of runs that are alive."""
    directory = state_dir / _DIRECTORY
    if not directory.is_dir():
        return []
    with locked(directory / _LOCK):
        return _live(directory)


def _live(directory: Path) -> list[Reservation]:
    """Those whose owners hold their lock; files of dead owners are removed. To be called with the directory locked."""
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            number = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its owner has just ended
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValidationError):
                found.append(Reservation.model_validate_json(path.read_bytes()))
        else:
            path.unlink(missing_ok=True)
        finally:
            os.close(number)
    return found


def _check(run: str, cores: float | None, memory: int | None, facts: HostFacts, others: Sequence[Reservation]) -> None:
    cores_taken = sum(facts.cores if x.cores is None else x.cores for x in others)
    memory_taken = sum(facts.memory if x.memory is None else x.memory for x in others)
    wanted_cores = facts.cores if cores is None else cores
    wanted_memory = facts.memory if memory is None else memory
    # A thousandth of a core is rounding (0.1 + 0.2), not a budget.
    if not others or (cores_taken + wanted_cores <= facts.cores + 0.001 and memory_taken + wanted_memory <= facts.memory):
        return
    shown = "; ".join(f"run {x.run} (pid {x.pid}) holds {x.budget()}" for x in others)
    asked = Reservation(run=run, pid=0, cores=cores, memory=memory).budget()
    raise CapabilityError(
        f"{asked} do not fit beside what is running: {shown}; this host has {facts.cores:g} cores and {format_bytes(facts.memory)}. "
        "Wait until it has ended, or give both runs a budget with --cores and --host-memory"
    )


def _choose(cores: float | None, available: Sequence[int], others: Sequence[Reservation]) -> tuple[int, ...] | None:
    """As many CPUs as the cores rounded up, those first that the fewest others use."""
    if cores is None:
        return None
    users = {cpu: sum(cpu in (x.cpus or ()) for x in others) for cpu in available}
    return tuple(sorted(sorted(available, key=lambda cpu: (users[cpu], cpu))[: ceil(cores)]))
