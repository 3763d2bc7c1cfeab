"""The complete options of a comparison of pages."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pgherd.studies.compare.options import CompareOptions

NONE, THP = "none", "thp"
"""The arms of ordinary pages and of transparent huge pages; every other arm is called by its page size, such as 2MB."""


class HugepagesOptions(CompareOptions):
    """A comparison whose arms are one server on several kinds of pages. ``uncounted`` says why the processor's counters
    cannot be read ('' where they can); ``page_sizes`` maps arms of reserved pages to their size in bytes."""

    uncounted: str = ""
    page_sizes: dict[str, int] = Field(default_factory=dict)

    def of(self, side: str) -> dict[str, Any]:
        """The options of an arm's own study."""
        return self.arm(side).options

    def reserved(self, side: str) -> int:
        """Pages reserved for the arm's server."""
        size = self.page_sizes.get(self.arm(side).name, 0)
        return int(self.of(side).get("huge_page_bytes", 0)) // size if size else 0
