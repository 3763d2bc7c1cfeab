"""Huge pages of a server: the number that it needs, and the settings that select them."""

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
"""Spellings of a boolean that PostgreSQL accepts (src/backend/utils/adt/bool.c). 'try' is in neither list."""


@dataclass(frozen=True)
class HugePageNeed:
    """Page size (bytes) and number of huge pages that one server needs."""

    size: int
    pages: int

    @property
    def bytes(self) -> int:
        """Memory of these pages."""
        return self.size * self.pages


def requires_huge_pages(settings: Mapping[str, str]) -> bool:
    """Return True if a server with these settings starts only with huge pages (huge_pages = on)."""
    return settings.get("huge_pages", "try").strip().lower() in ON


def refuses_huge_pages(settings: Mapping[str, str]) -> bool:
    """Return True if a server with these settings uses no huge pages (huge_pages = off)."""
    return settings.get("huge_pages", "try").strip().lower() in OFF


def require_no_huge_pages(settings: Mapping[str, str]) -> None:
    """Require that servers use no huge pages, in a study of memory limits, which do not include them.

    Raises:
        UsageError: Servers with these settings may use huge pages.
    """
    if not refuses_huge_pages(settings):
        value = settings.get("huge_pages", "try")
        raise UsageError(f"huge_pages is {value}, but the memory limits of this study do not include huge pages; add --set huge_pages=off")


def page_size(node: Node, settings: Mapping[str, str]) -> int:
    """Return the size (bytes) in the settings, or the kernel's default.

    Raises:
        CapabilityError: The kernel has no huge pages.
        UsageError: huge_page_size is not a size.
    """
    value = settings.get("huge_page_size", "0").strip()
    setting = int(value) * 1024 if value.isdigit() else parse_bytes(value)
    size = setting or host_pages.default_size(node)
    if not size:
        raise CapabilityError("huge_pages is on, but this kernel has no huge pages (/proc/meminfo has no Hugepagesize)")
    return size


def settings_for(word: str) -> dict[str, str]:
    """Return the settings for a value of ``--huge-pages``: a page size such as ``2MB``, ``thp`` or ``off``.

    ``thp`` and ``off`` disable reserved huge pages.

    Raises:
        UsageError: The value is none of these.
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
    """Return True or False if ``--huge-pages`` enables or disables transparent huge pages.

    None leaves the host unchanged, because reserved pages do not depend on it.
    """
    return {"thp": True, "off": False}.get(word or "")


def needed(node: Node, installation: Installation, settings: Mapping[str, str], data_dir: str, account: str | None) -> HugePageNeed:
    """Return the number of pages that a stopped server on ``data_dir`` with these settings needs.

    PostgreSQL computes it (``shared_memory_size_in_huge_pages``, since 15) for its complete main shared memory.

    Raises:
        CapabilityError: The server cannot use huge pages on this host.
        UsageError: PostgreSQL rejects the settings. The message contains its error.
    """
    size = page_size(node, settings)
    command = Command([installation.tool("postgres"), "-C", "shared_memory_size_in_huge_pages", "-D", data_dir], user=account)
    completed = node.run(command)
    output = completed.out.split()
    if completed.code != 0 or not output:
        error = (completed.err.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"PostgreSQL {installation.version} cannot compute the number of huge pages: {error}")
    pages = int(output[-1])
    if pages < 0:
        raise CapabilityError(f"PostgreSQL {installation.version} in {installation.bin} cannot use huge pages on this machine")
    return HugePageNeed(size, pages)
