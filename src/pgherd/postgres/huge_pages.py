"""How many huge pages a server needs, by asking PostgreSQL, and what its settings say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgherd.host import huge_pages as host_pages
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import parse_bytes
from pgherd.node.protocol import Command, Node
from pgherd.postgres.installations import Installation

ON = ("on", "true", "yes", "1", "tru", "tr", "t", "ye", "y")
OFF = ("off", "false", "no", "0", "of", "fals", "fal", "fa", "f", "n")
"""Spellings of a boolean that PostgreSQL takes (src/backend/utils/adt/bool.c); 'try' is neither."""


@dataclass(frozen=True)
class Need:
    """What one server needs: page size (bytes) and number of pages."""

    size: int
    pages: int

    @property
    def bytes(self) -> int:
        """Memory that these pages take."""
        return self.size * self.pages


def insists(settings: Mapping[str, str]) -> bool:
    """Whether these settings make a server that starts on huge pages or not at all (huge_pages = on)."""
    return settings.get("huge_pages", "try").strip().lower() in ON


def declines(settings: Mapping[str, str]) -> bool:
    """Whether these settings keep a server from huge pages that stand free (huge_pages = off)."""
    return settings.get("huge_pages", "try").strip().lower() in OFF


def page_size(node: Node, settings: Mapping[str, str]) -> int:
    """The size (bytes) that the settings name, or else the kernel's default.

    Raises:
        CapabilityError: this kernel has no huge pages.
        UsageError: huge_page_size is no size.
    """
    word = settings.get("huge_page_size", "0").strip()
    size = int(word) * 1024 if word.isdigit() else parse_bytes(word)
    found = size or host_pages.default_size(node)
    if not found:
        raise CapabilityError("huge_pages is on, but this kernel has no huge pages (/proc/meminfo has no Hugepagesize)")
    return found


def settings_for(word: str) -> dict[str, str]:
    """The settings of ``--huge-pages``: ``off`` and ``thp`` mean none of the reserved kind, else a page size such as ``2MB``.

    Raises:
        UsageError: it is none of these.
    """
    if word in ("off", "thp"):
        return {"huge_pages": "off"}
    try:
        size = parse_bytes(word)
    except UsageError:
        size = 0
    if size < 2**10 or size & (size - 1):
        raise UsageError(f"huge pages '{word}': give a page size such as 2MB or 1GB, or thp (transparent huge pages), or off")
    return {"huge_pages": "on", "huge_page_size": f"{size // 1024}kB"}


def transparent_for(word: str | None) -> bool | None:
    """Whether ``--huge-pages`` wants transparent huge pages: not where ordinary pages are meant. None: as the host has them, since
    reserved pages do not depend on it."""
    return {"thp": True, "off": False}.get(word or "")


def needed(node: Node, installation: Installation, settings: Mapping[str, str], data_dir: str, account: str | None) -> Need:
    """How many pages the stopped server in ``data_dir``, which has these settings, needs.

    PostgreSQL says so itself (``shared_memory_size_in_huge_pages``, 15 and later): the whole of its main shared memory, rounded up.

    Raises:
        CapabilityError: it cannot use huge pages here.
        UsageError: it refuses its settings; the message holds its own words.
    """
    size = page_size(node, settings)
    asked = Command([installation.tool("postgres"), "-C", "shared_memory_size_in_huge_pages", "-D", data_dir], user=account)
    done = node.run(asked)
    words = done.out.split()
    if done.code != 0 or not words:
        said = (done.err.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"PostgreSQL {installation.version} does not say how many huge pages it needs: {said}")
    pages = int(words[-1])
    if pages < 0:
        raise CapabilityError(f"PostgreSQL {installation.version} in {installation.bin} cannot use huge pages on this machine")
    return Need(size, pages)
