"""What a user may say of a comparison of pages; everything has a default, which completing the request fills in."""

from __future__ import annotations

from pydantic import Field, field_validator

from pgherd.studies.compare.request import Share
from pgherd.studies.databases import DatabaseRequest


class HugepagesRequest(DatabaseRequest):
    """Options of ``pgherd hugepages`` as given on the command line or in a scenario."""

    pages: tuple[str, ...] = Field((), description="kinds of pages: none, page sizes such as 2MB and 1GB, thp; the first is the baseline")
    clients: int | None = Field(None, ge=1, description="clients of the database")
    metric: str | None = Field(None, description="the metric that decides")
    blocks: int | None = Field(None, ge=1, description="blocks at most; each holds every kind of pages once, and the baseline twice")
    precision: Share | None = Field(None, description="go on until the interval is at most plus or minus this share")
    equivalence: Share = Field(0.02, description="differences up to this share are not worth having")

    @field_validator("repeats")
    @classmethod
    def _blocks_are_repeats(cls, repeats: int | None) -> int | None:
        if repeats is not None:
            raise ValueError("a comparison counts blocks, not repeats; give blocks")
        return repeats

    @field_validator("huge_pages")
    @classmethod
    def _pages_are_compared(cls, huge_pages: str | None) -> str | None:
        if huge_pages is not None:
            raise ValueError("this study compares several kinds of pages; name them with pages")
        return huge_pages
