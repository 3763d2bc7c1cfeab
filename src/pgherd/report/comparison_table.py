"""The table of a comparison as people read it: metrics by their names, ratios as changes in per cent."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Finding
from pgherd.report.data_files import Row
from pgherd.report.formatting import clean


def readable(rows: Sequence[Row]) -> list[Row]:
    """The rows with ``metric`` in words, ``change`` in place of ``ratio`` and ``A/A`` in place of ``floor``, both in per cent."""
    return [row | {"metric": label(row), "change": change(row.get("ratio")), "A/A": change(row.get("floor"))} for row in rows]


def label(row: Row) -> str:
    """A row's metric in words, as it is of its trials."""
    return clean(row.get("label", ""))


def change(ratio: object) -> Finding | None:
    """A ratio to the baseline as a change in per cent."""
    if not isinstance(ratio, Finding):
        return None
    ends = {name: None if (end := getattr(ratio, name)) is None else (end - 1) * 100 for name in ("value", "low", "high")}
    return ratio.model_copy(update={**ends, "unit": "%"})
