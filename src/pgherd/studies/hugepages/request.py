"""What a user may say of a comparison of pages; everything has a default, which completing the request fills in."""

from __future__ import annotations

from pydantic import Field, field_validator

from pgherd.studies.compare.request import BlocksRequest


class HugepagesRequest(BlocksRequest):
    """Options of ``pgherd hugepages`` as given on the command line or in a scenario."""

    pages: tuple[str, ...] = Field((), description="kinds of pages: none, page sizes such as 2MB and 1GB, thp; the first is the baseline")

    @field_validator("huge_pages")
    @classmethod
    def _pages_are_compared(cls, huge_pages: str | None) -> str | None:
        if huge_pages is not None:
            raise ValueError("this study compares several kinds of pages; name them with pages")
        return huge_pages
