import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import pgherd
from pgherd.model.errors import UsageError
from pgherd.model.units import Duration, Size, format_bytes, format_seconds, parse_buffers, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GB", 8 * 2**30), ("512 MiB", 2**29), ("64k", 65536), ("1.5g", 3 * 2**29), ("10", 10), (7, 7), ("2TB", 2**41), ("3 b", 3)],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1MB", "1 XB", "1,5 GB", "ten"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="not a memory size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("4h", 14400),
        ("90", 90),
        ("250ms", 0.25),
        (3, 3),
        ("1d", 86400),
        ("2 min", 120),
        ("6m50s", 410),
        ("1h 30m", 5400),
    ],
)
def test_durations(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5 years", "-3s", "4m20", "4 5"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError, match="not a duration"):
        parse_seconds(text)


def test_how_sizes_and_durations_are_shown():
    assert format_bytes(1572864) == "1.5 MB"
    assert format_bytes(200 * 2**20) == "200 MB"
    assert format_bytes(5) == "5 B"
    assert format_seconds(95) == "1 min 35 s"
    assert format_seconds(60) == "1 min"
    assert format_seconds(7260) == "2 h 1 min"
    assert format_seconds(2.25) == "2.2 s"


@given(st.integers(min_value=0, max_value=2**45))
def test_a_shown_size_is_near_what_it_was(size):
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.01, abs=1)


def test_every_megabyte_of_the_package_has_2_to_the_20_bytes():
    """Rates in MB/s are in 10^6 bytes per second (docs/reference/json.md); their factor is MB_PER_SECOND."""
    pattern = re.compile(r"^_?(?:MB|MIB)(?:, \w+)? = (.*)$", re.MULTILINE)
    sources = Path(pgherd.__file__).parent.rglob("*.py")
    found = [(path.name, match[1]) for path in sources for match in pattern.finditer(path.read_text())]
    assert len(found) > 5 and all(value.startswith("2**20") for _, value in found), found


class Options(BaseModel):
    memory: Size | None = None
    duration: Duration = Duration("9s")
    sizes: tuple[Size, ...] = ()


def test_quantities_of_options_are_numbers_that_keep_their_text():
    options = Options.model_validate({"memory": "512MB", "duration": "1m30s", "sizes": ["4k", "10"]})
    assert (options.memory, options.duration, options.sizes) == (2**29, 90.0, (4096, 10))
    assert f"--memory {options.memory} --duration {options.duration}" == "--memory 512MB --duration 1m30s"
    stored = {"memory": "512MB", "duration": "1m30s", "sizes": ["4k", "10"]}
    assert options.model_dump(mode="json") == stored and Options.model_validate(stored) == options
    assert Options.model_validate(dict(options)) == options, "parsed values are valid too"
    assert str(pickle.loads(pickle.dumps(options)).memory) == "512MB"


def test_quantities_of_options_are_texts_in_the_schema():
    schema = Options.model_json_schema()["properties"]
    assert schema["duration"] == {"default": "9s", "title": "Duration", "type": "string"}
    assert schema["memory"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "lots"}, "'lots' is not a memory size; write a number and a unit"),
        ({"duration": "soon"}, "'soon' is not a duration; write a number and a unit"),
        ({"duration": 3}, "Input should be a valid string"),
    ],
)
def test_other_quantities_of_options_are_rejected(options, message):
    with pytest.raises(ValidationError, match=message):
        Options.model_validate(options)


@pytest.mark.parametrize(("text", "size"), [("16384", 2**27), ("128MB", 2**27), ("0", 0)])
def test_buffers_without_a_unit_are_pages_of_8_kb(text, size):
    assert parse_buffers(text) == size
    with pytest.raises(UsageError, match="is not a memory size"):
        parse_buffers(f"{text}x")
