"""Undo journal: changes of one process to its host, for undo even after a kill.

There is one file per process, ``STATE/journal/RUN-PID.jsonl``, on the machine of the changes. It has a header line with
the owner, one line per change, synced before the change is made, and one line per undone change. The owner holds a lock
(flock) on its file during its life. The kernel releases the lock at its end, even after SIGKILL.

Several machines may share a home directory, and so the state in it. Journals of other machines are left unchanged.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from pgherd.host import processes, shared_settings
from pgherd.host.cgroup_parent import sweep
from pgherd.host.undo_actions import MARKER, UNDO, RemoveTree, Undo, UndoContext
from pgherd.model.base import Model
from pgherd.model.errors import CapabilityError
from pgherd.node import interruption
from pgherd.node.files import MAX_BYTES, Directory, UnsafeFileError, read_all, try_lock, write_all
from pgherd.node.protocol import Node

SCHEMA: Literal["pgherd/journal/1"] = "pgherd/journal/1"
_DIRECTORY = "journal"
LOCK = ".lock"
"""File in a directory of state that is locked while its files are created or examined."""
_MACHINE_NAMES = ("/etc/machine-id", "/proc/sys/kernel/hostname")


def machine_names(node: Node) -> tuple[str, ...]:
    """Return the names of this machine in records: its machine-id (machine-id(5)), if it has one, and its host name.

    One of them is enough to recognise it. A machine that boots from the network may get a new machine-id at each boot, and
    a host name may change.
    """
    names = []
    for path in _MACHINE_NAMES:
        with contextlib.suppress(OSError):
            names.append(node.read(path).decode().strip())
    return tuple(name for name in names if name not in ("", "uninitialized"))


def is_of_this_machine(node: Node, names: Collection[str], boot: str) -> bool:
    """Return whether a record with these names and this boot is of this machine.

    Containers on one machine may have different names, but they have the same boot. Records of former versions have no
    names, and count as this machine's.
    """
    return not names or boot == processes.boot_id(node) or not set(names).isdisjoint(machine_names(node))


class JournalOwner(Model):
    """Owner of a journal: pid, start time (clock ticks since boot), boot, and names of its machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["pgherd/journal/1"] = Field(SCHEMA, alias="schema")
    journal: str
    run: str
    pid: int
    start: int
    boot: str
    at: float
    machine: tuple[str, ...] = ()

    def alive(self, node: Node) -> bool:
        """Return whether this process still runs, and not another one with its pid."""
        return processes.boot_id(node) == self.boot and processes.start_time(node, self.pid) == self.start


class Journal:
    """An open journal, safe for use by several threads."""

    def __init__(self, node: Node, path: Path, number: int, owner: JournalOwner, entries: dict[int, Undo], *, torn: bool = False) -> None:
        """For internal use.

        See ``open`` for a new journal and ``clean`` for those of ended owners.
        """
        self._node, self._file, self._number = node, path, number
        self._owner = owner
        self._entries = entries
        self._next = max(entries, default=0) + 1
        self._torn = torn
        self._lock = threading.RLock()

    @classmethod
    def open(cls, node: Node, state_dir: Path, run: str) -> Journal:
        """Start a journal for this process.

        Raises CapabilityError if the state directory is not writable.
        """
        owner = JournalOwner(
            journal=uuid.uuid4().hex,
            run=run,
            pid=os.getpid(),
            start=processes.start_time(node, os.getpid()) or 0,
            boot=processes.boot_id(node),
            at=node.now(),
            machine=machine_names(node),
        )
        directory = state_dir / _DIRECTORY
        name = f"{run}-{owner.pid}-{owner.journal[:8]}.jsonl"
        journal: Journal | None = None
        try:
            with interruption.undisturbed():  # otherwise Ctrl-C could leave an open journal
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                with open_own(directory) as handle:
                    with handle.lock(LOCK):
                        number = handle.descriptor(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)
                        try_lock(number)  # nobody else can have it: the file is new
                        journal = cls(node, directory / name, number, owner, {})
                        journal._append(owner.model_dump(by_alias=True))
                    os.fsync(handle.number)
        except KeyboardInterrupt:
            if journal is not None:
                journal.close()
            raise
        except OSError as error:
            raise CapabilityError(
                f"the undo journal can't be written to {directory}: {error.strerror or error}; set XDG_STATE_HOME to a writable directory"
            ) from error
        return journal

    @property
    def id(self) -> str:
        """Identifier of the journal, as in the marker files of its directories."""
        return self._owner.journal

    def note(self, undo: Undo) -> int:
        """Record the undo of the next change, sync it to disk, and return its number."""
        with self._lock:
            number = self._next
            self._append({"id": number, "undo": undo.model_dump(mode="json")})
            self._entries[number] = undo
            self._next += 1
            return number

    def done(self, number: int) -> None:
        """Record that a change is undone."""
        with self._lock:
            if self._entries.pop(number, None) is not None:
                # A full disk must not prevent further undos. A repeated undo has no effect.
                with contextlib.suppress(OSError):
                    self._append({"done": number})

    def undo(self, number: int) -> str | None:
        """Undo one change now, and describe the action or return None.

        On OSError, the entry remains.
        """
        with self._lock:
            undo = self._entries.get(number)
        if undo is None:
            return None
        message = undo.play(UndoContext(self._node, self.id, processes.boot_id(self._node) == self._owner.boot))
        self.done(number)
        return message

    def make_tree(self, path: str, *, mode: int = 0o700) -> int:
        """Create a directory with its undo and its marker file, which is on disk before other files can be.

        Return its number.
        """
        if self._node.exists(path):
            raise FileExistsError(f"{path} exists already")
        number = self.note(RemoveTree(path=path))
        self._node.make_dir(path, mode=mode)
        with Directory.open(path) as tree, tree.open_file(MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as marker:
            write_all(marker, self.id.encode())
            os.fsync(marker)
        return number

    def pending(self) -> list[Undo]:
        """Return the pending undos in their order: by rank, the latest first."""
        return [self._entries[number] for number in self._order()]

    def _order(self) -> list[int]:
        return sorted(self._entries, key=lambda number: (self._entries[number].rank, -number))

    def play(self) -> list[str]:
        """Undo all changes, and describe each action and failure.

        Failed undos stay in the journal.
        """
        messages = []
        for number in self._order():
            try:
                sentence = self.undo(number)
            except (OSError, UnsafeFileError) as error:
                sentence = f"not undone: {_reason(error)}"
            if sentence:
                messages.append(sentence)
        return messages

    def close(self) -> list[str]:
        """Undo all changes, close the journal, and remove its file unless an undo failed.

        Ctrl-C takes effect afterwards (see ``interruption.ended_by_signals``).
        """
        with interruption.undisturbed():
            messages = self.play()
            if not self._entries:
                self._file.unlink(missing_ok=True)
            os.close(self._number)
        return messages

    def end(self, say: Callable[[str], object]) -> None:
        """Close the journal, and report failed undos as warnings."""
        for message in self.close():
            if message.startswith("not undone"):
                say(f"warning: {message}; 'pgherd clean' tries again")

    def _append(self, record: dict[str, Any]) -> None:
        # One write call per line: a kill leaves a complete line. A full disk or a crash may leave a torn one, which the
        # next line must not continue.
        line = (b"\n" if self._torn else b"") + json.dumps(record, ensure_ascii=True).encode() + b"\n"
        self._torn = True
        if os.write(self._number, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file))
        self._torn = False
        os.fsync(self._number)


def clean(node: Node, state_dir: Path) -> list[str]:
    """Undo the journals of ended owners, and describe each result.

    Raises CapabilityError if the state directory is not readable.
    """
    messages: list[str] = []
    try:
        with _journals(state_dir) as directory:
            for name in _names(directory):
                path = directory.path / name
                try:
                    with directory.lock(LOCK):  # excludes journals that their owner has not locked yet
                        number = directory.own_descriptor(name, os.O_RDWR | os.O_APPEND)
                        free = try_lock(number)
                    messages += _clean_one(node, path, number, free)
                except FileNotFoundError:
                    continue  # the owner has just closed it
                except (OSError, UnsafeFileError) as error:
                    messages.append(f"not undone: {path}: {_reason(error)}")
    except FileNotFoundError:
        pass  # there has been no run yet
    except UnsafeFileError as error:
        messages.append(f"not undone: {state_dir / _DIRECTORY}: {error}")
    return messages + sweep(node) + shared_settings.sweep(node)


def running(node: Node, state_dir: Path) -> list[str]:
    """Return the names of the runs (and their preparations) with a running owner.

    An owner that holds the lock is running, also in another container, whose processes are not listed here, and on another
    machine, which uses the templates in a shared home directory.
    """
    names = []
    with contextlib.suppress(FileNotFoundError, UnsafeFileError), _journals(state_dir) as directory, directory.lock(LOCK):
        for name in _names(directory):
            with contextlib.suppress(OSError, UnsafeFileError):
                number = directory.own_descriptor(name, os.O_RDWR)
                try:
                    free = try_lock(number)
                    owner = _owner(read_all(number, MAX_BYTES, name).decode(errors="replace"))
                finally:
                    os.close(number)
                if not free or (owner is not None and owner.alive(node)):
                    names.append(name.removesuffix(".jsonl") if owner is None else owner.run)
    return names


def _owner(text: str) -> JournalOwner | None:
    """Return the owner in a journal. None: it has no header, or is of another version of pgherd."""
    try:
        return parse(text)[0]
    except ValueError:
        return None


def _clean_one(node: Node, path: Path, number: int, free: bool) -> list[str]:
    """Undo one journal, whose file is open. It is read by its descriptor, because its path may name another file by now.

    It is also locked if ``free``, that is, without an owner's lock.
    """
    try:
        text = read_all(number, MAX_BYTES, str(path)).decode(errors="replace")
        owner, entries = parse(text)
    except (ValueError, UnsafeFileError) as error:
        os.close(number)
        return [f"not undone: {path}: {error}"]
    if owner is not None and not is_of_this_machine(node, owner.machine, owner.boot):
        os.close(number)
        return [f"left run {owner.run} alone: it ran on {owner.machine[-1]}; run 'pgherd clean' there"] if free else []
    if not free or (owner is not None and owner.alive(node)):
        os.close(number)
        return [f"left run {owner.run} alone: it is running (pid {owner.pid})" if owner else f"left {path} alone: it is in use"]
    if owner is None:  # the machine crashed before the header was on disk, so the journal has no entries
        path.unlink(missing_ok=True)
        os.close(number)
        return []
    journal = Journal(node, path, number, owner, entries, torn=not text.endswith("\n"))
    return [f"{sentence} (run {owner.run})" for sentence in journal.close()]


def parse(text: str) -> tuple[JournalOwner | None, dict[int, Undo]]:
    """Parse a journal into owner and pending undos, without torn lines.

    The owner is None if the header is missing. Raises ValueError for a journal of another schema.
    """
    owner: JournalOwner | None = None
    entries: dict[int, Undo] = {}
    for record in _records(text):
        if owner is None:
            schema = record.get("schema")
            if schema != SCHEMA:
                raise ValueError(f"its schema is {schema}, but this pgherd reads {SCHEMA}; use the version of pgherd that wrote it")
            owner = JournalOwner.model_validate(record)
        elif "undo" in record:
            try:
                entries[int(record["id"])] = UNDO.validate_python(record["undo"])
            except ValidationError as error:
                raise ValueError(f"entry {record.get('id')} is not an undo of this pgherd version: {error.errors()[0]['msg']}") from error
        elif "done" in record:
            entries.pop(int(record["done"]), None)
    return owner, entries


def _records(text: str) -> Iterable[dict[str, Any]]:
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


@contextlib.contextmanager
def open_own(directory: Path) -> Iterator[Directory]:
    """Open a directory of state, which must belong to this user and not be writable by others.

    Raises:
        OSError: it is missing, or not accessible.
        UnsafeFileError: others could put files there.
    """
    with Directory.open(os.path.realpath(directory)) as handle:
        handle.require_own()
        yield handle


@contextlib.contextmanager
def _journals(state_dir: Path) -> Iterator[Directory]:
    """Open the directory of journals. Raises FileNotFoundError, UnsafeFileError, and CapabilityError if it is not readable."""
    try:
        with open_own(state_dir / _DIRECTORY) as directory:
            yield directory
    except PermissionError as error:
        raise CapabilityError(f"{state_dir / _DIRECTORY} can't be read: {error.strerror}; run this as the user who ran pgherd") from error


def _names(directory: Directory) -> list[str]:
    return [name for name in directory.names() if name.endswith(".jsonl")]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename}"
    return str(error)
