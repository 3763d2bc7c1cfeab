"""The complete options of a study of the storage: one arm that is watched, or several that are compared."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pgherd.studies.compare.options import Arm, CompareOptions


class StorageOptions(CompareOptions):
    """With one arm its trial is run ``repeats`` times; with more they are compared in blocks.

    ``repeats`` are trials of a single arm. ``io_bound`` is how many times the container's memory the database is; None: it is
    meant to be cached. ``every`` is the time from one checkpoint to the next, seconds. ``untraced`` says why requests are not
    traced where that would be needed ('' where they are, or nobody asked).
    """

    arms: tuple[Arm, ...] = Field(min_length=1)
    repeats: int = Field(3, ge=1)
    io_bound: float | None = None
    every: float | None = None
    untraced: str = ""

    @property
    def single(self) -> bool:
        """Whether one server is watched, and nothing compared."""
        return len(self.arms) == 1

    def of(self, side: str) -> dict[str, Any]:
        """The options of an arm's own study."""
        return self.arm(side).options
