"""Huge pages of this host: reserved pools, and transparent ones of shared memory.

A pool has reserved pages of one size (Linux: Documentation/admin-guide/mm/hugetlbpage.rst). They are unavailable for
other uses, and no cgroup's memory limit includes them. Transparent huge pages of shared memory depend on one setting,
``shmem_enabled`` (admin-guide/mm/transhuge.rst), and are charged like other memory. Each change is in the journal before
it is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pgherd.host import shared_settings
from pgherd.host.facts import page_size, parse_meminfo
from pgherd.host.journal import Journal
from pgherd.host.kernel_files import active_word, names_in, text_of
from pgherd.host.permissions import may_write, remedy_to_write
from pgherd.host.undo_actions import ReleaseSetting
from pgherd.model.errors import CapabilityError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node

POOLS = "/sys/kernel/mm/hugepages"
COMPACT = "/proc/sys/vm/compact_memory"
TRANSPARENT = "/sys/kernel/mm/transparent_hugepage"
SHARED = f"{TRANSPARENT}/shmem_enabled"

_NODES = "/sys/devices/system/node"
_LARGEST_ORDER = 10
"""Binary logarithm of the pages in the largest blocks of /proc/buddyinfo."""
_SPARE_BYTES = 256 * 2**20
"""Memory that stays available for other uses when pages are reserved."""


@dataclass(frozen=True)
class HugePagePool:
    """Pool of one page size (``size``, in bytes); all other numbers are pages.

    Attributes:
        reserved: all pages of the pool.
        free: those that are not in use.
        promised: free pages that are committed to mappings already.
        surplus: pages in use beyond the reserved ones.
        nodes: NUMA node → pages reserved there.
    """

    size: int
    reserved: int
    free: int
    promised: int
    surplus: int
    nodes: Mapping[int, int] = field(default_factory=dict)

    @property
    def spare(self) -> int:
        """Pages available for a new server."""
        return max(0, self.free - self.promised)

    @property
    def path(self) -> str:
        """File with the number of reserved pages."""
        return pool_file(self.size)


def pool_file(size: int) -> str:
    """Return the file with the number of reserved pages of this size (bytes)."""
    return f"{POOLS}/hugepages-{size // 1024}kB/nr_hugepages"


def label(size: int) -> str:
    """Format a page size as huge_page_size accepts it: ``2097152`` → ``2MB``."""
    return format_bytes(size).replace(" ", "")


def pools(node: Node) -> dict[int, HugePagePool]:
    """Map each page size (bytes) to its pool, smallest first.

    The result is empty if the kernel has no huge pages.
    """
    sizes = sorted(int(match[1]) * 1024 for name in names_in(node, POOLS) if (match := re.fullmatch(r"hugepages-(\d+)kB", name)))
    return {size: _pool(node, size) for size in sizes}


def default_size(node: Node) -> int | None:
    """Return the kernel's default size (bytes), or None without huge pages."""
    return parse_meminfo(text_of(node, "/proc/meminfo")).get("Hugepagesize")


def check(node: Node, wanted: Mapping[int, int]) -> None:
    """Require this number of pages per size (bytes), without a trial reservation.

    Raises:
        CapabilityError: the kernel has no such size, memory does not suffice, or this user may not reserve pages.
    """
    by_size = pools(node)
    requested = {size: pages for size, pages in wanted.items() if pages > 0}
    for size, pages in requested.items():
        if size not in by_size:
            available_sizes = ", ".join(label(pool_size) for pool_size in by_size) or "none"
            raise CapabilityError(
                f"this kernel has no huge pages of {label(size)}; it has {available_sizes}. Larger ones may need a processor "
                "with 1 GB pages (pdpe1gb), or a kernel started with hugepagesz="
            )
        if not may_write(node, by_size[size].path):
            if by_size[size].spare >= pages:
                continue
            pool = by_size[size]
            raise CapabilityError(
                f"{_pages(pages, size)} are needed, {pool.spare} are free, and this user may not reserve more: "
                f"{remedy_to_write(node, pool.path)}, or have root write {pool.reserved + pages - pool.spare} to {pool.path}"
            )
    needed = sum(size * pages for size, pages in requested.items() if may_write(node, by_size[size].path))
    available = _available(node)
    if needed and needed + _SPARE_BYTES > available:
        text = " and ".join(_pages(pages, size) for size, pages in requested.items())
        raise CapabilityError(
            f"{text} take {format_bytes(needed)}, and {format_bytes(_SPARE_BYTES)} must stay available for other uses, but only "
            f"{format_bytes(available)} of memory are available; reduce shared_buffers or --scale"
        )


def reserve(node: Node, journal: Journal, size: int, pages: int) -> int | None:
    """Add pages of a size (bytes) to its pool, and return the journal entry to undo.

    The result is None if the pool is unchanged, because this user may not reserve pages but enough are free. If the kernel
    grants fewer pages, memory is compacted and the reservation repeated. Compaction takes about 1 s per 20 GB.

    Raises:
        CapabilityError: not enough pages; granted ones are released. The message has the reason and both numbers.
    """
    check(node, {size: pages})
    pool = _pool(node, size)
    if pages <= 0 or not may_write(node, pool.path):
        return None
    number, key = _note_hold(journal)
    try:
        granted = shared_settings.add(node, key, pool.path, pages, lambda: compact(node))
    except OSError as error:
        _undo(journal, number)
        raise CapabilityError(f"{_pages(pages, size)} cannot be reserved: {error.strerror}: {error.filename or pool.path}") from error
    if granted < pages:
        reason = _shortage(node, size)
        _undo(journal, number)
        raise CapabilityError(
            f"{_pages(pages, size)} were requested, but the kernel granted {granted}: {reason}. They were released. Use smaller "
            f"shared_buffers or a smaller page size, or reserve the pages at boot (hugepagesz={_parameter(size)} hugepages={pages})"
        )
    return number


def may_reserve(node: Node, size: int) -> bool:
    """Return whether this user may change the pool of a size (bytes)."""
    return may_write(node, pool_file(size))


def compact(node: Node) -> None:
    """Make the kernel compact memory.

    It has no effect without permission, or without support by the kernel.
    """
    try:
        node.write(COMPACT, b"1")
    except OSError:
        return


def transparent(node: Node) -> str | None:
    """Return the setting for shared memory (``never``, ``advise``, ``always`` …).

    The result is None if the kernel has none.
    """
    text = text_of(node, SHARED)
    return active_word(text) if text else None


def check_transparent(node: Node, on: bool) -> None:
    """Require that transparent huge pages of shared memory can be switched.

    Raises:
        CapabilityError: the kernel has no such setting, or this user may not change it.
    """
    word = transparent(node)
    if word is None:
        raise CapabilityError(f"this kernel cannot use transparent huge pages for shared memory: there is no {SHARED}")
    size_setting = text_of(node, _size_setting(node))
    if on and size_setting and active_word(size_setting) not in ("inherit", "always"):
        raise CapabilityError(f"{_size_setting(node)} is '{active_word(size_setting)}', which overrules {SHARED}; write 'inherit' to it")
    if word != word_for(on, word) and not may_write(node, SHARED):
        raise CapabilityError(
            f"{SHARED} is '{word}', '{word_for(on, word)}' is needed, and this user may not change it: {remedy_to_write(node, SHARED)}"
        )


def choose_transparent(node: Node, journal: Journal, on: bool) -> int | None:
    """Switch transparent huge pages, and return the journal entry to undo.

    The result is None if the setting is right already and this user may not hold it.

    Raises:
        CapabilityError: the setting cannot be changed, or another run needs a different one.
    """
    check_transparent(node, on)
    word = word_for(on, transparent(node) or "")
    if not may_write(node, SHARED):
        return None
    number, key = _note_hold(journal)
    try:
        shared_settings.choose(node, key, SHARED, word)
    except shared_settings.SettingConflict as error:
        _undo(journal, number)
        raise CapabilityError(f"{error}; wait until that run has ended") from error
    except OSError as error:
        _undo(journal, number)
        raise CapabilityError(f"'{word}' cannot be written to {SHARED}: {error.strerror}") from error
    return number


def word_for(on: bool, now: str) -> str:
    """Return the word to write; a current word with the same effect stays.

    'advise' has the effect of 'never', because PostgreSQL does not call madvise.
    """
    if on:
        return now if now in ("always", "force") else "always"
    return now if now in ("never", "deny", "advise") else "never"


def _size_setting(node: Node) -> str:
    """Return the file of the PMD size's setting, which may overrule the general one."""
    size = text_of(node, f"{TRANSPARENT}/hpage_pmd_size")
    return f"{TRANSPARENT}/hugepages-{int(size) // 1024 if size.isdigit() else 2048}kB/shmem_enabled"


def _note_hold(journal: Journal) -> tuple[int, str]:
    undo = ReleaseSetting.for_journal(journal.id)
    return journal.note(undo), undo.key


def _undo(journal: Journal, number: int) -> None:
    try:
        journal.undo(number)
    except OSError:
        return  # the entry stays in the journal, which is undone at the end


def _pool(node: Node, size: int) -> HugePagePool:
    directory = f"{POOLS}/hugepages-{size // 1024}kB"

    def count(name: str) -> int:
        text = text_of(node, f"{directory}/{name}")
        return int(text) if text.isdigit() else 0

    surplus = count("surplus_hugepages")
    return HugePagePool(
        size=size,
        reserved=count("nr_hugepages") - surplus,
        free=count("free_hugepages"),
        promised=count("resv_hugepages"),
        surplus=surplus,
        nodes=_pages_by_node(node, size),
    )


def _pages_by_node(node: Node, size: int) -> dict[int, int]:
    pages = {}
    for name in names_in(node, _NODES):
        text = text_of(node, f"{_NODES}/{name}/hugepages/hugepages-{size // 1024}kB/nr_hugepages")
        if re.fullmatch(r"node\d+", name) and text.isdigit():
            pages[int(name.removeprefix("node"))] = int(text)
    return dict(sorted(pages.items()))


def _available(node: Node) -> int:
    return parse_meminfo(text_of(node, "/proc/meminfo")).get("MemAvailable", 0)


def _shortage(node: Node, size: int) -> str:
    memory = parse_meminfo(text_of(node, "/proc/meminfo"))
    free, available = memory.get("MemFree", 0), memory.get("MemAvailable", 0)
    page = page_size(node) or 4096
    blocks = sum(free_blocks(text_of(node, "/proc/buddyinfo"), size, page).values())
    blocks_free = f", with {blocks} more free blocks of at least that size" if size <= page << _LARGEST_ORDER else ""
    return (
        f"there are no more contiguous blocks of that size ({format_bytes(free)} are free and {format_bytes(available)} available"
        f"{blocks_free}), even after compaction"
    )


def free_blocks(text: str, size: int, page: int) -> dict[str, int]:
    """Count free blocks of ``size`` bytes by zone, from /proc/buddyinfo, with pages of ``page`` bytes."""
    blocks = {}
    for zone, counts in re.findall(r"^(Node\s+\d+, zone\s+\S+)((?:\s+\d+)+)\s*$", text, re.MULTILINE):
        total = sum(int(count) * (page << order) // size for order, count in enumerate(counts.split()) if page << order >= size)
        blocks[re.sub(r"\s+", " ", zone)] = total
    return blocks


def _pages(count: int, size: int) -> str:
    return f"{count} huge page{'' if count == 1 else 's'} of {label(size)}"


def _parameter(size: int) -> str:
    return f"{size // 2**30}G" if size % 2**30 == 0 else f"{size // 2**20}M" if size % 2**20 == 0 else f"{size // 1024}K"
