"""The undo journal: what this process has changed on its host, and how to take it back if it can't do so itself.

One file per process, ``STATE/journal/RUN-PID.jsonl``: a header line with the owner, then one line per change, synced
before the change is made, and one per change taken back. The owner holds a lock (flock) on its file for as long as it lives; the
kernel drops it however the process ends. The file lies on the machine that it speaks of.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from pgherd.host import holds, processes
from pgherd.host.cgroup_base import sweep
from pgherd.host.undo import MARKER, UNDO, RemoveTree, Scene, Undo
from pgherd.model.base import Model
from pgherd.model.errors import CapabilityError
from pgherd.node import interruption
from pgherd.node.protocol import Node

SCHEMA: Literal["pgherd/journal/1"] = "pgherd/journal/1"
_DIRECTORY = "journal"
_LOCK = ".lock"


class Owner(Model):
    """The process that a journal belongs to: pid, start time (clock ticks since boot) and boot."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["pgherd/journal/1"] = Field(SCHEMA, alias="schema")
    journal: str
    run: str
    pid: int
    start: int
    boot: str
    at: float

    def alive(self, node: Node) -> bool:
        """Whether that very process still runs."""
        return processes.boot_id(node) == self.boot and processes.start_time(node, self.pid) == self.start


class Journal:
    """An open journal. Its calls may come from any thread."""

    def __init__(self, node: Node, path: Path, number: int, owner: Owner, entries: dict[int, Undo], *, torn: bool = False) -> None:
        """Use ``open`` (a new one) or ``clean`` (those of dead owners)."""
        self._node, self._file, self._number = node, path, number
        self._owner = owner
        self._entries = entries
        self._next = max(entries, default=0) + 1
        self._torn = torn
        self._lock = threading.RLock()

    @classmethod
    def open(cls, node: Node, state_dir: Path, run: str) -> Journal:
        """Start a journal for this process; raises CapabilityError where the state directory can't be written."""
        owner = Owner(
            journal=uuid.uuid4().hex,
            run=run,
            pid=os.getpid(),
            start=processes.start_time(node, os.getpid()) or 0,
            boot=processes.boot_id(node),
            at=node.now(),
        )
        directory = state_dir / _DIRECTORY
        path = directory / f"{run}-{owner.pid}-{owner.journal[:8]}.jsonl"
        journal: Journal | None = None
        try:
            with interruption.undisturbed():  # else Ctrl-C could leave a journal that nobody closes
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                with locked(directory / _LOCK):
                    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
                    fcntl.flock(number, fcntl.LOCK_EX)
                    journal = cls(node, path, number, owner, {})
                    journal._append(owner.model_dump(by_alias=True))
                _sync_directory(directory)
        except KeyboardInterrupt:
            if journal is not None:
                journal.close()
            raise
        except OSError as error:
            raise CapabilityError(
                f"the undo journal can't be written to {directory}: {error.strerror}; set XDG_STATE_HOME to a directory that can be written"
            ) from error
        return journal

    @property
    def id(self) -> str:
        """What the marker file of a directory made under this journal holds."""
        return self._owner.journal

    def note(self, undo: Undo) -> int:
        """Record how a change that is about to be made is taken back; returns its number. On disk when it returns."""
        with self._lock:
            number = self._next
            self._append({"id": number, "undo": undo.model_dump(mode="json")})
            self._entries[number] = undo
            self._next += 1
            return number

    def done(self, number: int) -> None:
        """The change has been taken back."""
        with self._lock:
            if self._entries.pop(number, None) is not None:
                # A full disk must not keep us from undoing more: an undo that is played twice does nothing.
                with contextlib.suppress(OSError):
                    self._append({"done": number})

    def undo(self, number: int) -> str | None:
        """Take one change back now; a sentence on what was done, or None. Raises OSError, and keeps the entry."""
        with self._lock:
            undo = self._entries.get(number)
        if undo is None:
            return None
        said = undo.play(Scene(self._node, self.id, processes.boot_id(self._node) == self._owner.boot))
        self.done(number)
        return said

    def make_tree(self, path: str, *, mode: int = 0o700) -> int:
        """Make a directory that goes with this journal: note its removal, make it, mark it. Returns its number."""
        if self._node.exists(path):
            raise FileExistsError(f"{path} exists already")
        number = self.note(RemoveTree(path=path))
        self._node.make_dir(path, mode=mode)
        self._node.write(f"{path}/{MARKER}", self.id.encode())
        return number

    def pending(self) -> list[Undo]:
        """What has not been taken back, in the order in which it is to be: processes, groups, knobs, directories;
        within each the latest first."""
        return [self._entries[number] for number in self._order()]

    def _order(self) -> list[int]:
        return sorted(self._entries, key=lambda number: (self._entries[number].rank, -number))

    def play(self) -> list[str]:
        """Take everything back; sentences on what was done and on what could not be (that stays in the journal)."""
        said = []
        for number in self._order():
            try:
                sentence = self.undo(number)
            except OSError as error:
                sentence = f"not undone: {_reason(error)}"
            if sentence:
                said.append(sentence)
        return said

    def close(self) -> list[str]:
        """Play what is pending and end the journal; its file goes unless something could not be undone.

        Ctrl-C waits until that is done (see ``interruption.ended_by_signals``).
        """
        with interruption.undisturbed():
            said = self.play()
            if not self._entries:
                self._file.unlink(missing_ok=True)
            os.close(self._number)
        return said

    def end(self, say: Callable[[str], object]) -> None:
        """Close it, and say what could not be undone."""
        for said in self.close():
            if said.startswith("not undone"):
                say(f"warning: {said}; 'pgherd clean' tries again")

    def _append(self, record: dict[str, Any]) -> None:
        # One write call per line: a kill leaves a whole line, a full disk or a crash at worst a torn last one, which
        # the next line must not continue.
        line = (b"\n" if self._torn else b"") + json.dumps(record, ensure_ascii=True).encode() + b"\n"
        self._torn = True
        if os.write(self._number, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file))
        self._torn = False
        os.fsync(self._number)


def clean(node: Node, state_dir: Path) -> list[str]:
    """Play the journals of owners that no longer live; sentences on what was removed, failed, or left alone.

    Raises CapabilityError where the state directory can't be read.
    """
    said: list[str] = []
    for path in _files(state_dir):
        try:
            with locked(path.parent / _LOCK):  # so that we never see a journal whose owner has not locked it yet
                number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                free = _try_lock(number)
            said += _clean_one(node, path, number, free)
        except FileNotFoundError:
            continue  # its owner has just ended in order
        except OSError as error:
            said.append(f"left {path} alone: {_reason(error)}")
    return said + sweep(node) + holds.sweep(node)


def running(node: Node, state_dir: Path) -> list[str]:
    """Names of the runs (and preparations of runs) whose journals' owners live."""
    names = []
    for path in _files(state_dir):
        with contextlib.suppress(OSError, ValueError):
            owner, _ = parse(path.read_text(errors="replace"))
            if owner is not None and owner.alive(node):
                names.append(owner.run)
    return names


def _clean_one(node: Node, path: Path, number: int, free: bool) -> list[str]:
    """Play one journal that we have open, and locked if its owner does not hold it."""
    text = path.read_text(errors="replace")
    try:
        owner, entries = parse(text)
    except ValueError as error:
        os.close(number)
        return [f"left {path} alone: {error}"]
    if not free or (owner is not None and owner.alive(node)):
        os.close(number)
        return [f"left run {owner.run} alone: it is running (pid {owner.pid})" if owner else f"left {path} alone: it is in use"]
    if owner is None:  # the machine stopped before the header was on disk: nothing had been noted
        path.unlink(missing_ok=True)
        os.close(number)
        return []
    journal = Journal(node, path, number, owner, entries, torn=not text.endswith("\n"))
    return [f"{sentence} (run {owner.run})" for sentence in journal.close()]


def parse(text: str) -> tuple[Owner | None, dict[int, Undo]]:
    """Owner and pending undos of a journal's text; a torn line (no newline, or not JSON) counts as never written.

    The owner is None where not even the header was written. Raises ValueError for a journal of another schema.
    """
    owner: Owner | None = None
    entries: dict[int, Undo] = {}
    for record in _records(text):
        if owner is None:
            schema = record.get("schema")
            if schema != SCHEMA:
                raise ValueError(f"it is written in schema {schema}, and this pgherd reads {SCHEMA}; use the pgherd that wrote it")
            owner = Owner.model_validate(record)
        elif "undo" in record:
            try:
                entries[int(record["id"])] = UNDO.validate_python(record["undo"])
            except ValidationError as error:
                raise ValueError(f"entry {record.get('id')} is not an undo that this pgherd knows: {error.errors()[0]['msg']}") from error
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
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file (made if missing) for a moment; waits for others."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _try_lock(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _files(state_dir: Path) -> list[Path]:
    directory = state_dir / _DIRECTORY
    try:
        return sorted(directory.glob("*.jsonl")) if directory.is_dir() else []
    except OSError as error:
        raise CapabilityError(f"{directory} can't be read: {error.strerror}; run this as the user who ran pgherd") from error


def _reason(error: OSError) -> str:
    return f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error)


def _sync_directory(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
