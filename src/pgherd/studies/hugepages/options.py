"""The complete options of a comparison of pages."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from pgherd.study.comparison.options import CompareOptions
from pgherd.study.comparison.request import BlocksRequest

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


class HugepagesRequest(BlocksRequest):
    """Options of ``pgherd hugepages`` as given on the command line or in a scenario."""

    pages: tuple[str, ...] = Field((), description="kinds of pages: none, page sizes such as 2MB and 1GB, thp; the first is the baseline")

    @field_validator("huge_pages")
    @classmethod
    def _pages_are_compared(cls, huge_pages: str | None) -> str | None:
        if huge_pages is not None:
            raise ValueError("this study compares several kinds of pages; name them with pages")
        return huge_pages
