"""Parsing and formatting of numbers, memory sizes and durations, and the latter two as values of options."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final, Literal, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from pgherd.model.errors import UsageError

_BYTES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MOST_BYTES = 2**63
_NUMBER, _UNIT = r"\d+(?:\.\d+)?", "(?:min|ms|s|m|h|d)"
MB_PER_SECOND = 1e6
"""Bytes per second of a rate in MB/s, as of fio, dd and vendors of devices. Sizes in MB have 2^20 bytes, as in PostgreSQL."""
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


Mark = Literal[".", ","]
"""Decimal mark."""
_SPACES = "'\u2019\u00a0\u2009\u202f"
"""Characters between groups of three digits, besides the other mark: apostrophes, and spaces that do not break a line."""


def _number_pattern(mark: Mark) -> re.Pattern[str]:
    group = rf"[{_SPACES}{',' if mark == '.' else '.'}]"
    whole = rf"(?:[1-9]\d{{0,2}}(?P<group>{group})\d{{3}}(?:(?P=group)\d{{3}})*|\d+)"
    return re.compile(rf"[-+]?(?:{whole}(?:{re.escape(mark)}\d*)?|{re.escape(mark)}\d+)(?:[eE][-+]?\d+)?", re.ASCII)


_NUMBERS: Final[dict[Mark, re.Pattern[str]]] = {".": _number_pattern("."), ",": _number_pattern(",")}


def parse_number(text: str, mark: Mark = ".") -> float | None:
    """Return the finite number that a text is, or None. Thousands may be grouped: ``1,050.5``, or ``1.050,5`` with the mark ``,``."""
    match = _NUMBERS[mark].fullmatch(text.strip())
    if match is None:
        return None
    value = float(match[0].replace(match["group"] or "", "").replace(mark, "."))
    return value if math.isfinite(value) else None


def required_marks(texts: Iterable[str]) -> set[Mark]:
    """Return the decimal marks without which some of the texts would be no number.

    ``12,5`` and ``1.050,5`` require a comma, ``12.5`` and ``1,050.5`` a point. ``1,050`` and ``900`` require neither.
    """
    required = set[Mark]()
    for text in texts:
        point, comma = parse_number(text, ".") is not None, parse_number(text, ",") is not None
        if point != comma:
            required.add("." if point else ",")
    return required


def parse_buffers(text: str) -> int:
    """Convert a value of shared_buffers to bytes: a size with a unit, or a number of pages of 8 kB.

    Raises:
        UsageError: it is neither.
    """
    return 8192 * int(text) if text.isdecimal() else parse_bytes(text)


def parse_bytes(text: str | int) -> int:
    """Parse ``8GB``, ``512 MiB``, ``64k`` or a number of bytes. Prefixes are powers of 1024, as in PostgreSQL.

    Raises:
        UsageError: the text is not a size.
    """
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if not match:
        raise UsageError(f"'{text}' is not a memory size; write a number and a unit, such as 512MB or 8GB")
    size = float(match[1]) * _BYTES[match[2]]
    if size > _MOST_BYTES:
        raise UsageError(f"'{text[:40]}' is more than any memory; write a size such as 512MB or 8GB")
    return int(size)


def parse_seconds(text: str | float | int) -> float:
    """Parse ``10m``, ``4h``, ``90s``, ``250ms``, ``6m50s`` or a number of seconds.

    Raises:
        UsageError: the text is not a duration.
    """
    if isinstance(text, int | float):
        return float(text)
    if not re.fullmatch(rf"\s*(?:{_NUMBER}|(?:{_NUMBER}\s*{_UNIT}\s*)+)\s*", text.lower()):
        raise UsageError(f"'{text}' is not a duration; write a number and a unit, such as 30s, 10m or 4h")
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(rf"({_NUMBER})\s*({_UNIT}|)", text.lower()))


class Size(int):
    """Memory size in bytes of an option. It is written and stored as the user's text, such as ``512MB``.

    ``Size(text)`` raises UsageError if the text is not a size.
    """

    text: str

    def __new__(cls, text: str | int) -> Self:
        """Parse the text."""
        size = super().__new__(cls, parse_bytes(text))
        size.text = str(text)
        return size

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _text_schema(cls)


class Duration(float):
    """Duration in seconds of an option. It is written and stored as the user's text, such as ``10m``.

    ``Duration(text)`` raises UsageError if the text is not a duration.
    """

    text: str

    def __new__(cls, text: str | float) -> Self:
        """Parse the text."""
        duration = super().__new__(cls, parse_seconds(text))
        duration.text = str(text)
        return duration

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _text_schema(cls)


def _text_schema(kind: type[Size] | type[Duration]) -> CoreSchema:
    """Return pydantic's schema of an option's quantity, which is a text in JSON."""

    def parse(value: object) -> Size | Duration:
        if isinstance(value, kind):
            return value
        if not isinstance(value, str):
            raise PydanticKnownError("string_type")
        try:
            return kind(value)
        except UsageError as error:
            raise ValueError(str(error)) from None

    return core_schema.no_info_plain_validator_function(
        parse, json_schema_input_schema=core_schema.str_schema(), serialization=core_schema.to_string_ser_schema(when_used="always")
    )


def format_bytes(count: float) -> str:
    """Format bytes: ``1572864`` → ``1.5 MB``. Prefixes are powers of 1024, as in PostgreSQL."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 100 else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TB"


def format_rate(rate: float) -> str:
    """Format bytes per second: ``1500000`` → ``1.5 MB/s``. Prefixes are powers of 1000, as in ``MB_PER_SECOND``."""
    for unit in ("B/s", "kB/s", "MB/s", "GB/s"):
        if abs(rate) < 1000:
            return f"{rate:.0f} {unit}" if unit == "B/s" or abs(rate) >= 100 else f"{rate:.3g} {unit}"
        rate /= 1000
    return f"{rate:.3g} TB/s"


def format_seconds(seconds: float) -> str:
    """Format a duration by its two largest units: ``95`` → ``1 min 35 s``."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
