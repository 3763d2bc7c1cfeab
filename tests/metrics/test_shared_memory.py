from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.sampler import SamplingView
from pgherd.metrics.shared_memory import SAMPLER

FIXTURES = Path(__file__).parents[1] / "fixtures/metrics"
SOURCE = SAMPLER.once("db01/pg", 4711)
MB = 2**20


def reading(name: str) -> dict[str, float]:
    [(entity, values)] = SAMPLER.parse((FIXTURES / name).read_text(), SOURCE)
    assert entity == "server:db01/pg"
    return values


@pytest.mark.parametrize(
    ("name", "size", "mapped", "huge"),
    [
        ("smaps-ordinary", 4096, 23212 * 1024, 0),
        ("smaps-2mb", 2 * MB, (28672 + 268288) * 1024, (28672 + 268288) * 1024),
        ("smaps-1gb", 1024 * MB, 2048 * MB, 2048 * MB),
        ("smaps-thp", 4096, None, None),
    ],
)
def test_real_memory_maps(name: str, size: int, mapped: int | None, huge: int | None) -> None:
    found = reading(name)
    assert found["pages.size"] == size
    if mapped is not None:
        assert (found["pages.mapped"], found["pages.huge"], found["pages.reserved"]) == (mapped, huge, huge)
    else:
        assert found["pages.reserved"] == 0
        assert 0.9 * found["pages.mapped"] <= found["pages.huge"] <= found["pages.mapped"]


def test_it_is_read_once_and_not_while_a_trial_runs() -> None:
    assert SAMPLER.sources(SamplingView()) == []
    assert SOURCE.where == "/proc/4711/smaps" and SOURCE.sampler == SAMPLER.name


def test_a_process_without_shared_memory_has_no_reading() -> None:
    text = "7fff2e774000-7fff2e795000 rw-p 00000000 00:00 0   [stack]\nSize:  132 kB\nRss:  20 kB\n"
    assert list(SAMPLER.parse(text, SOURCE)) == []
    assert list(SAMPLER.parse("", SOURCE)) == []


def test_the_largest_mapping_counts() -> None:
    def entry(name: str, size: int) -> str:
        return f"7f0000000000-7f0000001000 rw-s 00000000 00:01 5   {name}\nSize: {size} kB\nKernelPageSize: 4 kB\nRss: {size} kB\n"

    text = entry("/SYSV0 (deleted)", 4) + entry("/dev/zero (deleted)", 900) + entry("/home/file", 5000) + entry("/dev/shm/x", 5000)
    [(_, values)] = SAMPLER.parse(text, SOURCE)
    assert values["pages.mapped"] == 900 * 1024


@given(st.text())
def test_other_text_is_refused_or_skipped(text: str) -> None:
    try:
        assert list(SAMPLER.parse(text, SOURCE)) == []
    except ValueError as error:
        assert "smaps" in str(error) or "count" in str(error)
