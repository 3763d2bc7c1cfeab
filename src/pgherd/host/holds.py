"""What runs of pgherd have added to, or chosen in, a kernel setting that several of them may need at once.

The pool of huge pages is one number for the whole machine. Of two runs that each wrote an old value back, one would take
the other's pages away or leave its own behind, depending on which ends first. So each notes its part, a *hold*, in one
small file of the machine, under a lock, before it changes the setting. What is written when a hold is given back follows
from the value before the first hold and the holds that are left. To give one back twice, or one whose change was never
made, does no harm. The file lies in /run, which a boot empties, and is gone while nothing is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from pgherd.host import processes
from pgherd.model.base import Model
from pgherd.node.protocol import Node

LEDGER = Path("/run/pgherd-holds.json")
"""Only root can change these settings, so root's own directory will do."""


class Hold(Model):
    """One run's part: ``amount`` added to a number, or the ``word`` chosen. ``pid`` and ``start`` name its process."""

    amount: int = 0
    word: str = ""
    pid: int
    start: int


class Knob(Model):
    """A setting's value before anything was held, and the holds by key."""

    before: str
    holds: dict[str, Hold]


class Ledger(Model):
    """All that is held since this boot, by the setting's path."""

    boot: str
    knobs: dict[str, Knob]


class Held(Exception):
    """Another run holds this setting at another word."""


def add(node: Node, key: str, path: str, amount: int, retry: Callable[[], None]) -> int:
    """Raise the number in ``path`` by ``amount`` in the name of ``key``; returns by how much it rose.

    Where the kernel gives less, ``retry`` is called and it is asked once more. A hold that fell short is to be given back.
    Raises OSError when the setting or the ledger cannot be written.
    """
    with _locked(node) as ledger:
        current = _number(node, path)
        knob = ledger.knobs.get(path) or Knob(before=str(current), holds={})
        surplus = max(0, current - _expected(knob))  # somebody else has raised it meanwhile: that is theirs
        holds = {**knob.holds, key: _mine(node, amount=amount)}
        ledger.knobs[path] = Knob(before=str(int(knob.before) + surplus), holds=holds)
        _save(ledger)
        node.write(path, str(current + amount).encode())
        if _number(node, path) < current + amount:
            retry()
            node.write(path, str(current + amount).encode())
        return _number(node, path) - current


def choose(node: Node, key: str, path: str, word: str) -> None:
    """Write ``word`` into ``path`` in the name of ``key``, unless it is chosen already.

    Raises Held when another run holds it at another word, OSError when the setting or the ledger cannot be written.
    """
    with _locked(node) as ledger:
        knob = ledger.knobs.get(path) or Knob(before=chosen(node.read(path).decode()), holds={})
        others = {hold.word: hold.pid for hold in knob.holds.values() if hold.word != word}
        if others:
            other, pid = next(iter(others.items()))
            raise Held(f"{path} is held at '{other}' by process {pid}, and '{word}' is needed")
        ledger.knobs[path] = Knob(before=knob.before, holds={**knob.holds, key: _mine(node, word=word)})
        _save(ledger)
        if chosen(node.read(path).decode()) != word:
            node.write(path, word.encode())


def give_back(node: Node, key: str) -> list[str]:
    """Take one hold back; sentences on what was written. Raises OSError when it cannot be, and the hold stays."""
    if not LEDGER.exists():
        return []
    with _locked(node) as ledger:
        return _give_back(node, ledger, key)


def sweep(node: Node) -> list[str]:
    """Take back what processes hold that live no more; sentences on what was done or could not be. Root's holds are root's matter."""
    if not os.access(LEDGER, os.W_OK):
        return []
    said: list[str] = []
    try:
        with _locked(node) as ledger:
            for key in [k for knob in list(ledger.knobs.values()) for k, hold in knob.holds.items() if not _alive(node, hold)]:
                said += _give_back(node, ledger, key)
    except OSError as error:
        said.append(f"not undone: {error.strerror}: {error.filename or LEDGER}")
    return said


def chosen(text: str) -> str:
    """``always [madvise] never`` → ``madvise``; a text without brackets is itself."""
    match = re.search(r"\[(.+?)\]", text)
    return match[1] if match else text.strip()


def _give_back(node: Node, ledger: Ledger, key: str) -> list[str]:
    said = []
    for path in [path for path, knob in ledger.knobs.items() if key in knob.holds]:
        knob = ledger.knobs[path]
        expected = _expected(knob)
        left = Knob(before=knob.before, holds={name: hold for name, hold in knob.holds.items() if name != key})
        if node.exists(path):
            written = _lower(node, path, knob.holds[key], left, expected)
            said += [f"wrote {written} back to {path}"] if written is not None else []
        ledger.knobs[path] = left
        if not left.holds:
            del ledger.knobs[path]
        _save(ledger)
    return said


def _lower(node: Node, path: str, hold: Hold, left: Knob, expected: int) -> str | None:
    """Write what the setting is to be without the hold; None where it is so already (the change may never have been made)."""
    if hold.word:
        word = next((other.word for other in left.holds.values()), left.before)
        if chosen(node.read(path).decode()) == word:
            return None
        node.write(path, word.encode())
        return word
    current = _number(node, path)
    wanted = _expected(left) if current <= expected else current - hold.amount  # who raised it meanwhile keeps that
    if current <= wanted:
        return None
    node.write(path, str(wanted).encode())
    return str(wanted)


def _expected(knob: Knob) -> int:
    return int(knob.before) + sum(hold.amount for hold in knob.holds.values()) if knob.before.isdigit() else 0


def _number(node: Node, path: str) -> int:
    """The number in the setting, less what the kernel counts in it although nobody asked for it: surplus pages, which are
    in use beyond the pool and go by themselves (Documentation/admin-guide/mm/hugetlbpage.rst)."""
    number = int(node.read(path))
    surplus = f"{posixpath.dirname(path)}/surplus_hugepages"
    return number - int(node.read(surplus)) if node.exists(surplus) else number


def _mine(node: Node, amount: int = 0, word: str = "") -> Hold:
    return Hold(amount=amount, word=word, pid=os.getpid(), start=processes.start_time(node, os.getpid()) or 0)


def _alive(node: Node, hold: Hold) -> bool:
    return processes.start_time(node, hold.pid) == hold.start


@contextlib.contextmanager
def _locked(node: Node) -> Iterator[Ledger]:
    """The ledger, while nobody else can change it. One of an earlier boot, or that cannot be parsed, counts as empty."""
    number = os.open(LEDGER.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the lock leaves no file of its own
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        boot = processes.boot_id(node)
        ledger = Ledger(boot=boot, knobs={})
        with contextlib.suppress(FileNotFoundError, ValidationError):
            found = Ledger.model_validate_json(LEDGER.read_bytes())
            ledger = found if found.boot == boot else ledger
        yield ledger
    finally:
        os.close(number)


def _save(ledger: Ledger) -> None:
    """By a rename, so that a kill leaves the old or the new one."""
    if not ledger.knobs:
        LEDGER.unlink(missing_ok=True)
        return
    new = LEDGER.with_suffix(".new")
    new.write_bytes(ledger.model_dump_json().encode())
    new.replace(LEDGER)
