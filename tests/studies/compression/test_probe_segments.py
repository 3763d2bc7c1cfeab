import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import TrialError
from pgherd.studies.compression.probe_segments import (
    OTHERS,
    SegmentReader,
    SegmentSource,
    choose_segments,
    merge_small_sources,
    sources_of_directory,
)

MB = 2**20


def part(name, *sizes):
    return SegmentSource(name, tuple(SegmentReader(size, lambda offset, length: b"x" * length) for size in sizes))


@given(st.lists(st.integers(1, 40 * MB), min_size=1, max_size=30), st.integers(4, 100), st.integers(0, 9))
def test_all_parts_are_sampled_and_none_beyond_its_end(sizes, samples, seed):
    parts = merge_small_sources([part(str(number), size) for number, size in enumerate(sizes)])
    assert sum(one.size for one in parts) == sum(sizes) and len(parts) <= 12
    for one in parts:
        numbers = choose_segments(parts, samples, seed)[one.name]
        assert len(numbers) == len(set(numbers)) >= min(4, one.segments)
        assert all(0 <= number < one.segments for number in numbers)
    assert choose_segments(parts, samples, seed) == choose_segments(parts, samples, seed)


def test_segments_are_read_where_they_are():
    read = []

    def reader(name):
        return lambda offset, length: read.append((name, offset, length)) or b"x" * length

    one = SegmentSource("a", (SegmentReader(2 * MB + 5, reader("first")), SegmentReader(10, reader("second"))))
    assert one.segments == 4
    assert [(number, len(data)) for number, data in one.read([0, 2, 3])] == [(0, MB), (2, 5), (3, 10)]
    assert read == [("first", 0, MB), ("first", 2 * MB, 5), ("second", 0, 10)]


def test_what_is_gone_meanwhile_is_left_out():
    assert list(SegmentSource("a", (SegmentReader(10, lambda offset, length: b""),)).read([0])) == []


def test_small_parts_are_taken_together():
    found = merge_small_sources([part(str(number), number + 1) for number in range(20)])
    assert len(found) == 12 and found[-1].name == OTHERS and found[0].size == 20


def test_a_directory_is_read_below_its_top_without_links(tmp_path):
    (tmp_path / "a/deep").mkdir(parents=True)
    (tmp_path / "a/deep/one").write_bytes(b"1" * 100)
    (tmp_path / "a/two").write_bytes(b"2" * 50)
    (tmp_path / "top").write_bytes(b"3" * 10)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "top")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = {one.name: one for one in sources_of_directory(str(tmp_path))}
    assert {name: one.size for name, one in found.items()} == {"a/": 150, "files at the top": 10}
    assert sorted(data for _, data in found["a/"].read([0, 1])) == [b"1" * 100, b"2" * 50]


def test_a_directory_that_holds_nothing_is_said(tmp_path):
    with pytest.raises(TrialError, match="holds no file"):
        sources_of_directory(str(tmp_path))
    with pytest.raises(TrialError, match="cannot be read"):
        sources_of_directory(str(tmp_path / "gone"))
