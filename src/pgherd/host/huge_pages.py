"""Huge pages of this host: the pools that the kernel keeps, and the transparent huge pages of shared memory.

A pool holds reserved pages of one size (Linux: Documentation/admin-guide/mm/hugetlbpage.rst). Pages in it are taken from
everybody else, whether used or not, and no control group's memory limit counts them. Transparent huge pages of shared
memory depend on one word, ``shmem_enabled`` (admin-guide/mm/transhuge.rst), and are charged like other memory.
Whatever is changed here is in the journal before it is changed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from pgherd.host import holds
from pgherd.host.cgroup_layout import text_of
from pgherd.host.facts import parse_meminfo
from pgherd.host.journal import Journal
from pgherd.host.undo import GiveBack
from pgherd.model.errors import CapabilityError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

POOLS = "/sys/kernel/mm/hugepages"
COMPACT = "/proc/sys/vm/compact_memory"
TRANSPARENT = "/sys/kernel/mm/transparent_hugepage"
SHARED = f"{TRANSPARENT}/shmem_enabled"

_NODES = "/sys/devices/system/node"
_BASE_PAGE = 4096
_SPARE_MEMORY = 256 * 2**20
"""Bytes that stay available to everybody else when pages are reserved."""


@dataclass(frozen=True)
class Pool:
    """The pool of one page size (bytes), in pages: ``reserved`` in all, of which ``free`` are not in use and ``promised`` of
    these are spoken for; ``surplus`` are in use beyond what was reserved. ``nodes``: NUMA node → pages reserved there."""

    size: int
    reserved: int
    free: int
    promised: int
    surplus: int
    nodes: Mapping[int, int] = field(default_factory=dict)

    @property
    def spare(self) -> int:
        """Pages that a new server could have."""
        return max(0, self.free - self.promised)

    @property
    def path(self) -> str:
        """The file with the number of reserved pages."""
        return pool_file(self.size)


def pool_file(size: int) -> str:
    """Where the number of pages of this size (bytes) is read and written."""
    return f"{POOLS}/hugepages-{size // 1024}kB/nr_hugepages"


def label(size: int) -> str:
    """``2097152`` → ``2MB``: as PostgreSQL's huge_page_size and pgherd's options take it."""
    return format_bytes(size).replace(" ", "")


def pools(node: Node) -> dict[int, Pool]:
    """Page size (bytes) → its pool, smallest first; empty where the kernel has no huge pages."""
    try:
        names = node.listdir(POOLS)
    except OSError:
        return {}
    sizes = sorted(int(match[1]) * 1024 for name in names if (match := re.fullmatch(r"hugepages-(\d+)kB", name)))
    return {size: _pool(node, size) for size in sizes}


def default_size(node: Node) -> int | None:
    """The size (bytes) that a server gets which names none; None where there are no huge pages."""
    return parse_meminfo(text_of(node, "/proc/meminfo")).get("Hugepagesize")


def check(node: Node, wanted: Mapping[int, int]) -> None:
    """Insist that so many pages per size (bytes) could be had, as far as can be told without trying. Changes nothing.

    Raises:
        CapabilityError: the kernel has no such size, memory does not suffice, or this user may not reserve pages.
    """
    there = pools(node)
    missing = {size: pages for size, pages in wanted.items() if pages > 0}
    for size, pages in missing.items():
        if size not in there:
            have = ", ".join(label(one) for one in there) or "none"
            raise CapabilityError(
                f"this kernel has no huge pages of {label(size)}; it has {have}. Larger ones may need a processor with 1 GB pages "
                "(pdpe1gb), or a kernel started with hugepagesz="
            )
        if not _writable(node, there[size].path):
            if there[size].spare >= pages:
                continue
            raise CapabilityError(
                f"{_pages(pages, size)} are needed, {there[size].spare} are free, and this user may not reserve more: run pgherd as root, "
                f"or have root write {there[size].reserved + pages - there[size].spare} to {there[size].path}"
            )
    needed = sum(size * pages for size, pages in missing.items() if _writable(node, there[size].path))
    available = _available(node)
    if needed and needed + _SPARE_MEMORY > available:
        text = " and ".join(_pages(pages, size) for size, pages in missing.items())
        raise CapabilityError(
            f"{text} take {format_bytes(needed)}, and {format_bytes(_SPARE_MEMORY)} are to be left to everybody else, but only "
            f"{format_bytes(available)} of memory are available; ask for smaller shared_buffers, or a smaller --scale"
        )


def reserve(node: Node, journal: Journal, size: int, pages: int) -> int | None:
    """Add pages of a size (bytes) to its pool; ``journal.undo`` of the number returned gives them back.

    None: nothing was changed, since this user may not reserve but enough pages stand free. Where the kernel gives
    fewer at once, memory is compacted (a second per 20 GB, in which the machine is busy) and it is asked once more.

    Raises:
        CapabilityError: they cannot be had; what was given is given back. The message has the reason and both numbers.
    """
    check(node, {size: pages})
    pool = _pool(node, size)
    if pages <= 0 or not _writable(node, pool.path):
        return None
    number, key = _note(journal)
    try:
        given = holds.add(node, key, pool.path, pages, lambda: compact(node))
    except OSError as error:
        _undo(journal, number)
        raise CapabilityError(f"{_pages(pages, size)} cannot be reserved: {error.strerror}: {error.filename or pool.path}") from error
    if given < pages:
        reason = _why_short(node, size)
        _undo(journal, number)
        raise CapabilityError(
            f"{_pages(pages, size)} were asked for, but the kernel gave {given}: {reason}. They were given back. Ask for smaller "
            f"shared_buffers or a smaller page size, or have the kernel reserve them when it starts (hugepagesz={_parameter(size)} "
            f"hugepages={pages})"
        )
    return number


def may_reserve(node: Node, size: int) -> bool:
    """Whether this user may change the pool of a size (bytes)."""
    return _writable(node, pool_file(size))


def compact(node: Node) -> None:
    """Have the kernel move used pages together; what it cannot do (no such file, no permission) it leaves."""
    try:
        node.write(COMPACT, b"1")
    except OSError:
        return


def transparent(node: Node) -> str | None:
    """The word in effect for shared memory (``never``, ``advise``, ``always`` …); None where the kernel has no such choice."""
    text = text_of(node, SHARED)
    return holds.chosen(text) if text else None


def check_transparent(node: Node, on: bool) -> None:
    """Insist that transparent huge pages of shared memory could be switched as wanted. Changes nothing.

    Raises:
        CapabilityError: the kernel has no such choice, or this user may not make it.
    """
    word = transparent(node)
    if word is None:
        raise CapabilityError(f"this kernel cannot use transparent huge pages for shared memory: there is no {SHARED}")
    own = text_of(node, _own_knob(node))
    if on and own and holds.chosen(own) not in ("inherit", "always"):
        raise CapabilityError(f"{_own_knob(node)} is '{holds.chosen(own)}', which overrules {SHARED}; write 'inherit' to it")
    if word != word_for(on, word) and not _writable(node, SHARED):
        raise CapabilityError(
            f"{SHARED} is '{word}', '{word_for(on, word)}' is needed, and this user may not change it: run pgherd as root"
        )


def choose_transparent(node: Node, journal: Journal, on: bool) -> int | None:
    """Switch transparent huge pages of shared memory; ``journal.undo`` of the number returned switches them back.

    None: nothing was changed, since the word in effect says so already and this user may not hold it there.

    Raises:
        CapabilityError: it cannot be switched, or another run needs it otherwise.
    """
    check_transparent(node, on)
    word = word_for(on, transparent(node) or "")
    if not _writable(node, SHARED):
        return None
    number, key = _note(journal)
    try:
        holds.choose(node, key, SHARED, word)
    except holds.Held as error:
        _undo(journal, number)
        raise CapabilityError(f"{error}; wait until that run has ended") from error
    except OSError as error:
        _undo(journal, number)
        raise CapabilityError(f"'{word}' cannot be written to {SHARED}: {error.strerror}") from error
    return number


def word_for(on: bool, now: str) -> str:
    """What the knob must say; a word that already has the wanted effect stays ('advise' has none on PostgreSQL, which
    advises nothing)."""
    if on:
        return now if now in ("always", "force") else "always"
    return now if now in ("never", "deny", "advise") else "never"


def _own_knob(node: Node) -> str:
    size = text_of(node, f"{TRANSPARENT}/hpage_pmd_size")
    return f"{TRANSPARENT}/hugepages-{int(size) // 1024 if size.isdigit() else 2048}kB/shmem_enabled"


def _note(journal: Journal) -> tuple[int, str]:
    key = f"{journal.id}-{uuid.uuid4().hex[:8]}"
    return journal.note(GiveBack(key=key)), key


def _undo(journal: Journal, number: int) -> None:
    try:
        journal.undo(number)
    except OSError:
        return  # it stays in the journal, which is played at the end


def _pool(node: Node, size: int) -> Pool:
    directory = f"{POOLS}/hugepages-{size // 1024}kB"

    def count(name: str) -> int:
        text = text_of(node, f"{directory}/{name}")
        return int(text) if text.isdigit() else 0

    surplus = count("surplus_hugepages")
    return Pool(
        size=size,
        reserved=count("nr_hugepages") - surplus,
        free=count("free_hugepages"),
        promised=count("resv_hugepages"),
        surplus=surplus,
        nodes=_by_node(node, size),
    )


def _by_node(node: Node, size: int) -> dict[int, int]:
    try:
        names = node.listdir(_NODES)
    except OSError:
        return {}
    found = {}
    for name in names:
        text = text_of(node, f"{_NODES}/{name}/hugepages/hugepages-{size // 1024}kB/nr_hugepages")
        if re.fullmatch(r"node\d+", name) and text.isdigit():
            found[int(name.removeprefix("node"))] = int(text)
    return dict(sorted(found.items()))


def _writable(node: Node, path: str) -> bool:
    return node.run(Command(("test", "-w", path))).code == 0


def _available(node: Node) -> int:
    return parse_meminfo(text_of(node, "/proc/meminfo")).get("MemAvailable", 0)


def _why_short(node: Node, size: int) -> str:
    memory = parse_meminfo(text_of(node, "/proc/meminfo"))
    free, available = memory.get("MemFree", 0), memory.get("MemAvailable", 0)
    blocks = sum(free_blocks(text_of(node, "/proc/buddyinfo"), size).values())
    pieces = f", which hold {blocks} more free blocks of that size or larger" if size <= 4 * 2**20 else ""
    return (
        f"there are no more connected pieces of that size ({format_bytes(free)} are free and {format_bytes(available)} available{pieces}), "
        "even after memory was compacted"
    )


def free_blocks(text: str, size: int) -> dict[str, int]:
    """Zone → free blocks of at least ``size`` bytes, counted in blocks of that size, from the text of /proc/buddyinfo."""
    found = {}
    for zone, counts in re.findall(r"^(Node\s+\d+, zone\s+\S+)((?:\s+\d+)+)\s*$", text, re.MULTILINE):
        whole = sum(int(count) * (_BASE_PAGE << order) // size for order, count in enumerate(counts.split()) if _BASE_PAGE << order >= size)
        found[re.sub(r"\s+", " ", zone)] = whole
    return found


def _pages(count: int, size: int) -> str:
    return f"{count} huge page{'' if count == 1 else 's'} of {label(size)}"


def _parameter(size: int) -> str:
    return f"{size // 2**30}G" if size % 2**30 == 0 else f"{size // 2**20}M" if size % 2**20 == 0 else f"{size // 1024}K"
