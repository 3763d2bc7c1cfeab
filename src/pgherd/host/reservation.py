"""Reservation of a host share per run, for concurrent runs.

A reservation is a file ``STATE/reservations/RUN-PID.json``, locked by its owner. The kernel releases the lock at the
owner's end, even after SIGKILL. Users have separate state directories, so runs of different users are independent. So are
those of different machines that share a home directory.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

from pydantic import ValidationError

from pgherd.host import processes
from pgherd.host.journal import LOCK, is_of_this_machine, machine_names, open_own
from pgherd.model.base import Model
from pgherd.model.errors import CapabilityError
from pgherd.model.host_facts import HostFacts
from pgherd.model.units import format_bytes
from pgherd.node.files import Directory, UnsafeFileError, read_all, try_lock
from pgherd.node.local import LocalNode

_DIRECTORY = "reservations"
_MAX_BYTES = 2**16
_NODE = LocalNode()


class Reservation(Model):
    """Host share of a run: ``cores`` and ``memory`` (bytes).

    None is the complete host.

    ``cpus`` are its CPUs, as many as the cores rounded up, and different from those of other runs if there are enough.
    The result is None if the complete host is reserved.

    ``machine`` and ``boot`` identify the host (see ``journal.is_of_this_machine``).
    """

    run: str
    pid: int
    cores: float | None
    memory: int | None
    cpus: tuple[int, ...] | None = None
    machine: tuple[str, ...] = ()
    boot: str = ""

    def budget(self) -> str:
        """Format the share: ``2 cores and 4 GB``."""
        cores = "all cores" if self.cores is None else f"{self.cores:g} core{'' if self.cores == 1 else 's'}"
        return f"{cores} and {'all memory' if self.memory is None else format_bytes(self.memory)}"


@contextlib.contextmanager
def reserve(
    state_dir: Path, run: str, cores: float | None, memory: int | None, facts: HostFacts, cpus: Sequence[int] | None = None
) -> Iterator[Reservation]:
    """Reserve a host share for the time of the ``with`` block.

    ``cpus`` are the available ones (default: all that this process may use). Raises CapabilityError if the share
    exceeds the host, or its remainder after the shares of other runs.
    """
    available = tuple(cpus) if cpus is not None else tuple(sorted(os.sched_getaffinity(0)))
    if cores is not None and cores > facts.cores:
        raise CapabilityError(f"{cores:g} cores were requested, but this host has {facts.cores:g}; reduce --host-cores")
    if memory is not None and memory > facts.memory:
        raise CapabilityError(
            f"{format_bytes(memory)} of memory were requested, but this host has {format_bytes(facts.memory)}; reduce --memory"
        )
    directory = state_dir / _DIRECTORY
    name = f"{run}-{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open_own(directory) as handle, handle.lock(LOCK):
            others = _live(handle)
            require_free(cores, memory, facts, others)
            reservation = Reservation(
                run=run,
                pid=os.getpid(),
                cores=cores,
                memory=memory,
                cpus=_choose(cores, available, others),
                machine=machine_names(_NODE),
                boot=processes.boot_id(_NODE),
            )
            number = handle.descriptor(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try_lock(number)  # nobody else can have it: the file is new
            os.write(number, reservation.model_dump_json().encode())
    except OSError as error:
        raise CapabilityError(
            f"the reservation can't be written to {directory}: {error.strerror or error}; set XDG_STATE_HOME to a writable directory"
        ) from error
    try:
        yield reservation
    finally:
        (directory / name).unlink(missing_ok=True)
        os.close(number)


def live(state_dir: Path) -> list[Reservation]:
    """Return the reservations of running runs on this machine."""
    directory = state_dir / _DIRECTORY
    if not directory.is_dir():
        return []
    with open_own(directory) as handle, handle.lock(LOCK):
        return _live(handle)


def _live(directory: Directory) -> list[Reservation]:
    """Return this machine's reservations with a locked file, and remove its other files.

    The directory must be locked.
    """
    reservations = []
    for name in directory.names():
        if not name.endswith(".json"):
            continue
        try:
            number = directory.own_descriptor(name, os.O_RDWR)
        except (FileNotFoundError, UnsafeFileError):
            continue  # the owner has just ended, or it is no reservation of ours
        reservation = None
        try:
            with contextlib.suppress(ValidationError, UnsafeFileError):
                reservation = Reservation.model_validate_json(read_all(number, _MAX_BYTES, name))
            if reservation is not None and not is_of_this_machine(_NODE, reservation.machine, reservation.boot):
                continue
            if try_lock(number):
                directory.remove(name)
            elif reservation is not None:
                reservations.append(reservation)
        finally:
            os.close(number)
    return reservations


def require_free(cores: float | None, memory: int | None, facts: HostFacts, others: Sequence[Reservation]) -> None:
    """Require that the reservations of ``others`` leave this share of the host. Raises CapabilityError."""
    reserved_cores = sum(facts.cores if other.cores is None else other.cores for other in others)
    reserved_memory = sum(facts.memory if other.memory is None else other.memory for other in others)
    requested_cores = facts.cores if cores is None else cores
    requested_memory = facts.memory if memory is None else memory
    # Tolerate rounding errors (0.1 + 0.2) by a thousandth of a core.
    if not others or (reserved_cores + requested_cores <= facts.cores + 0.001 and reserved_memory + requested_memory <= facts.memory):
        return
    reservations = "; ".join(f"run {other.run} (pid {other.pid}) holds {other.budget()}" for other in others)
    requested = Reservation(run="", pid=0, cores=cores, memory=memory).budget()
    raise CapabilityError(
        f"{requested} are not available: {reservations}; this host has {facts.cores:g} cores and {format_bytes(facts.memory)}. "
        "Wait until it has ended, or limit the cores and memory of both runs"
    )


def _choose(cores: float | None, available: Sequence[int], others: Sequence[Reservation]) -> tuple[int, ...] | None:
    """Choose CPUs for the cores rounded up, those with the fewest runs first."""
    if cores is None:
        return None
    users = {cpu: sum(cpu in (other.cpus or ()) for other in others) for cpu in available}
    return tuple(sorted(sorted(available, key=lambda cpu: (users[cpu], cpu))[: ceil(cores)]))
