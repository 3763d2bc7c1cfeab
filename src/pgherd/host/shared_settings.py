"""Kernel settings that several runs share, with a ledger of each run's part.

The pool of huge pages is one number for the machine. If two runs each restored its old value, the first to end would
take the pages of the other, or the last would not restore the original one. Therefore each run records its part, a
*hold*, before it changes the setting. The ledger is a small file, changed under a lock. The value after a release is
computed from the value before the first hold and the remaining holds.

A repeated release has no effect, nor has the release of a hold whose change was never made. The file is in /run, which
a boot empties, and exists only while there are holds.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from pgherd.host import processes
from pgherd.host.kernel_files import active_word
from pgherd.model.base import Model
from pgherd.node.files import Directory, UnsafeFileError
from pgherd.node.protocol import Node

LEDGER = Path("/run/pgherd-holds.json")
"""In a directory of root, because only root can change these settings."""


class SettingUse(Model):
    """Part of one run: ``amount`` added to a number, or a selected ``word``.

    ``pid`` and ``start`` identify its process.
    """

    amount: int = 0
    word: str = ""
    pid: int
    start: int


class SettingRecord(Model):
    """Value of a setting before the first hold, and the holds by key."""

    before: str
    holds: dict[str, SettingUse]


class SettingsLedger(Model):
    """All holds since this boot, by path of the setting."""

    boot: str
    knobs: dict[str, SettingRecord]


class SettingConflict(Exception):
    """Another run holds this setting at a different word."""


def add(node: Node, key: str, path: str, amount: int, retry: Callable[[], None]) -> int:
    """Increase the number in ``path`` as hold ``key``, and return the increase.

    If the kernel grants less, ``retry`` is called and the number is written again. The caller must release a hold that
    is still too small. Raises OSError if the setting or the ledger cannot be written.
    """
    with _locked(node) as ledger:
        current = _number(node, path)
        knob = ledger.knobs.get(path) or SettingRecord(before=str(current), holds={})
        surplus = max(0, current - _expected(knob))  # increase by other programs, which stays
        holds = {**knob.holds, key: _new_hold(node, amount=amount)}
        ledger.knobs[path] = SettingRecord(before=str(int(knob.before) + surplus), holds=holds)
        _save(ledger)
        node.write(path, str(current + amount).encode())
        if _number(node, path) < current + amount:
            retry()
            node.write(path, str(current + amount).encode())
        return _number(node, path) - current


def choose(node: Node, key: str, path: str, word: str) -> None:
    """Select ``word`` in ``path`` as hold ``key``.

    The file is written only if another word is selected.

    Raises Held if another run holds a different word, and OSError if the setting or the ledger cannot be written.
    """
    with _locked(node) as ledger:
        knob = ledger.knobs.get(path) or SettingRecord(before=active_word(node.read(path).decode()), holds={})
        others = {hold.word: hold.pid for hold in knob.holds.values() if hold.word != word}
        if others:
            other, pid = next(iter(others.items()))
            raise SettingConflict(f"{path} is held at '{other}' by process {pid}, and '{word}' is needed")
        ledger.knobs[path] = SettingRecord(before=knob.before, holds={**knob.holds, key: _new_hold(node, word=word)})
        _save(ledger)
        if active_word(node.read(path).decode()) != word:
            node.write(path, word.encode())


def give_back(node: Node, key: str) -> list[str]:
    """Release a hold and describe each write. On OSError, the hold remains."""
    if not LEDGER.exists():
        return []
    with _locked(node) as ledger:
        return _give_back(node, ledger, key)


def sweep(node: Node) -> list[str]:
    """Release the holds of ended processes, and describe each write and failure.

    It has no effect for ordinary users.
    """
    if not os.access(LEDGER, os.W_OK):
        return []
    messages: list[str] = []
    try:
        with _locked(node) as ledger:
            for key in [key for knob in list(ledger.knobs.values()) for key, hold in knob.holds.items() if not _alive(node, hold)]:
                messages += _give_back(node, ledger, key)
    except OSError as error:
        messages.append(f"not undone: {error.strerror or error}: {error.filename or LEDGER}")
    except UnsafeFileError as error:
        messages.append(f"not undone: {error}")
    return messages


def _give_back(node: Node, ledger: SettingsLedger, key: str) -> list[str]:
    messages = []
    for path in [path for path, knob in ledger.knobs.items() if key in knob.holds]:
        knob = ledger.knobs[path]
        expected = _expected(knob)
        remaining = SettingRecord(before=knob.before, holds={name: hold for name, hold in knob.holds.items() if name != key})
        if node.exists(path):
            written = _lower(node, path, knob.holds[key], remaining, expected)
            messages += [f"wrote {written} back to {path}"] if written is not None else []
        ledger.knobs[path] = remaining
        if not remaining.holds:
            del ledger.knobs[path]
        _save(ledger)
    return messages


def _lower(node: Node, path: str, hold: SettingUse, remaining: SettingRecord, expected: int) -> str | None:
    """Write the value of the setting without the hold and return it.

    The result is None if it is set already.
    """
    if hold.word:
        word = next((other.word for other in remaining.holds.values()), remaining.before)
        if active_word(node.read(path).decode()) == word:
            return None
        node.write(path, word.encode())
        return word
    current = _number(node, path)
    target = _expected(remaining) if current <= expected else current - hold.amount  # keep an increase by other programs
    if current <= target:
        return None
    node.write(path, str(target).encode())
    return str(target)


def _expected(knob: SettingRecord) -> int:
    return int(knob.before) + sum(hold.amount for hold in knob.holds.values()) if knob.before.isdigit() else 0


def _number(node: Node, path: str) -> int:
    """Return the number in the setting without surplus pages.

    The kernel includes in it the pages in use beyond the pool, and frees them after use (admin-guide/mm/hugetlbpage.rst).
    """
    number = int(node.read(path))
    surplus = f"{posixpath.dirname(path)}/surplus_hugepages"
    return number - int(node.read(surplus)) if node.exists(surplus) else number


def _new_hold(node: Node, amount: int = 0, word: str = "") -> SettingUse:
    return SettingUse(amount=amount, word=word, pid=os.getpid(), start=processes.start_time(node, os.getpid()) or 0)


def _alive(node: Node, hold: SettingUse) -> bool:
    return processes.start_time(node, hold.pid) == hold.start


@contextlib.contextmanager
def _locked(node: Node) -> Iterator[SettingsLedger]:
    """Provide the ledger under a lock, which other users cannot hold: they cannot open its file.

    A ledger from an earlier boot, or with syntax errors, counts as empty.

    Raises TimeoutError with the name of the process that holds the lock.
    """
    with Directory.open(LEDGER.parent) as directory, directory.lock(f"{LEDGER.stem}.lock"):
        boot = processes.boot_id(node)
        ledger = SettingsLedger(boot=boot, knobs={})
        with contextlib.suppress(FileNotFoundError, ValidationError):
            stored = SettingsLedger.model_validate_json(directory.read(LEDGER.name, owner=os.geteuid()))
            ledger = stored if stored.boot == boot else ledger
        yield ledger


def _save(ledger: SettingsLedger) -> None:
    """Replace the file by a rename, so that a kill leaves the old or the new one."""
    if not ledger.knobs:
        LEDGER.unlink(missing_ok=True)
        return
    with Directory.open(LEDGER.parent) as directory:
        directory.write(LEDGER.name, ledger.model_dump_json().encode())
