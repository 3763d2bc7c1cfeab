from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgherd.host import huge_pages, shared_settings
from pgherd.host.journal import Journal, clean, parse
from pgherd.host.undo_actions import UNDO, ReleaseSetting
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode

SMALL, LARGE = 2 * 2**20, 2**30


@pytest.fixture(autouse=True)
def _ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_settings, "LEDGER", tmp_path / "holds.json")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(LocalNode(), tmp_path / "state", "run")
    yield opened
    opened.close()


def with_node(journal: Journal, node: Any) -> Journal:
    journal._node = node
    return journal


def test_pools_by_size_smallest_first(fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    node.total[SMALL], node.used[SMALL] = 10, 4
    result = huge_pages.pools(node)
    assert list(result) == [SMALL, LARGE]
    assert (result[SMALL].reserved, result[SMALL].free, result[SMALL].spare, result[SMALL].surplus) == (10, 6, 6, 0)
    assert huge_pages.default_size(node) == SMALL
    assert huge_pages.pools(fake_pools.PoolNode(sizes=())) == {} and huge_pages.default_size(fake_pools.PoolNode(sizes=())) is None


@pytest.mark.parametrize(("size", "text"), [(SMALL, "2MB"), (LARGE, "1GB"), (65536, "64kB"), (32 * 2**20, "32MB")])
def test_sizes_are_called_as_postgresql_takes_them(size: int, text: str) -> None:
    assert huge_pages.label(size) == text


def test_pages_are_reserved_and_given_back(journal: Journal, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    with_node(journal, node)
    number = huge_pages.reserve(node, journal, SMALL, 100)
    assert number is not None and node.total[SMALL] == 100 and node.compactions == 0
    assert journal.undo(number) == f"wrote 0 back to {huge_pages.pool_file(SMALL)}"
    assert node.total[SMALL] == 0


def test_the_undo_is_on_disk_before_the_change(journal: Journal, monkeypatch: pytest.MonkeyPatch, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    with_node(journal, node)
    observed = []

    def write(path: str, data: bytes) -> None:
        _, entries = parse(journal._file.read_text())
        observed.append([type(entry) for entry in entries.values()])
        fake_pools.PoolNode.write(node, path, data)

    monkeypatch.setattr(node, "write", write)
    huge_pages.reserve(node, journal, SMALL, 5)
    huge_pages.choose_transparent(node, journal, on=True)
    assert observed == [[ReleaseSetting], [ReleaseSetting, ReleaseSetting]]


def test_memory_is_compacted_where_pages_are_missing_and_they_are_asked_for_again(journal: Journal, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    with_node(journal, node)
    node.most[LARGE] = 1
    assert huge_pages.reserve(node, journal, LARGE, 3) is not None
    assert node.compactions == 1 and node.total[LARGE] == 3


def test_pages_that_cannot_be_had_are_refused_with_both_numbers_and_given_back(journal: Journal, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    with_node(journal, node)
    node.total[LARGE] = 1
    node.most[LARGE] = node.compacted[LARGE] = 2
    with pytest.raises(CapabilityError, match=r"3 huge pages of 1GB were requested, but the kernel granted 1: .*hugepagesz=1G") as caught:
        huge_pages.reserve(node, journal, LARGE, 3)
    assert caught.value.exit_code == 3
    assert node.total[LARGE] == 1 and journal.pending() == []


def test_more_than_memory_is_refused_before_anything_is_tried(journal: Journal, fake_pools: Any) -> None:
    node = fake_pools.PoolNode(memory=2**30)
    with_node(journal, node)
    with pytest.raises(CapabilityError, match=r"1000 huge pages of 2MB take 1.95 GB, .* only 1 GB of memory"):
        huge_pages.reserve(node, journal, SMALL, 1000)
    assert node.compactions == 0 and journal.pending() == []


def test_sizes_are_added_up_when_they_are_checked(fake_pools: Any) -> None:
    node = fake_pools.PoolNode(memory=4 * 2**30)
    huge_pages.check(node, {SMALL: 900})
    huge_pages.check(node, {LARGE: 2})
    with pytest.raises(CapabilityError, match="900 huge pages of 2MB and 2 huge pages of 1GB take"):
        huge_pages.check(node, {SMALL: 900, LARGE: 2})


def test_a_size_that_the_kernel_does_not_have_is_named_with_those_it_has(fake_pools: Any) -> None:
    with pytest.raises(CapabilityError, match="no huge pages of 1GB; it has 2MB"):
        huge_pages.check(fake_pools.PoolNode(sizes=(SMALL,)), {LARGE: 1})


def test_without_root_free_pages_do_and_nothing_else(journal: Journal, fake_pools: Any) -> None:
    node = fake_pools.PoolNode(root=False)
    with_node(journal, node)
    node.total[SMALL] = 10
    assert huge_pages.reserve(node, journal, SMALL, 10) is None
    with pytest.raises(CapabilityError, match="11 huge pages of 2MB are needed, 10 are free, .* as root, or have root write 11 to"):
        huge_pages.reserve(node, journal, SMALL, 11)
    assert journal.pending() == []


def test_as_root_the_pages_of_others_are_left_to_them(journal: Journal, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    with_node(journal, node)
    node.total[SMALL] = 50
    huge_pages.reserve(node, journal, SMALL, 20)
    assert node.total[SMALL] == 70


@pytest.mark.parametrize(
    ("before", "on", "during"),
    [
        ("never", True, "always"),
        ("advise", True, "always"),
        ("force", True, "force"),
        ("always", False, "never"),
        ("advise", False, "advise"),
    ],
)
def test_transparent_pages_are_switched_as_far_as_needed_and_back(
    journal: Journal, before: str, on: bool, during: str, fake_pools: Any
) -> None:
    node = fake_pools.PoolNode()
    with_node(journal, node)
    node.shared = before
    number = huge_pages.choose_transparent(node, journal, on)
    assert node.shared == during and number is not None
    journal.undo(number)
    assert node.shared == before


def test_transparent_pages_without_root(fake_pools: Any) -> None:
    node = fake_pools.PoolNode(root=False)
    huge_pages.check_transparent(node, on=False)
    with pytest.raises(CapabilityError, match="is 'never', 'always' is needed, .* as root"):
        huge_pages.check_transparent(node, on=True)


def test_a_size_of_their_own_overrules(fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    node.own = "never"
    with pytest.raises(CapabilityError, match="overrules"):
        huge_pages.check_transparent(node, on=True)


def test_another_run_that_needs_the_other_word(journal: Journal, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    with_node(journal, node)
    shared_settings.choose(node, "another", huge_pages.SHARED, "never")
    with pytest.raises(CapabilityError, match="wait until that run has ended"):
        huge_pages.choose_transparent(node, journal, on=True)
    assert journal.pending() == [] and node.shared == "never"


def test_free_blocks_of_a_size() -> None:
    text = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n" \
           "Node 0, zone   Normal  11265   9784   4410   4083   2933   1850   1233    905    581    645   3085 \n"  # fmt: skip
    assert huge_pages.free_blocks(text, SMALL, 4096) == {"Node 0, zone DMA": 7, "Node 0, zone Normal": 645 + 2 * 3085}
    large = 1850 + 2 * 1233 + 4 * 905 + 8 * 581 + 16 * 645 + 32 * 3085
    assert huge_pages.free_blocks(text, SMALL, 65536) == {"Node 0, zone DMA": 8 + 16 + 3 * 32, "Node 0, zone Normal": large}


@pytest.mark.parametrize(("page", "blocks"), [(4096, 2 + 2 * 7), (65536, 1 + 16 * 2 + 32 * 7)])
def test_free_blocks_of_the_kernels_pages_are_in_the_message(page: int, blocks: int, journal: Journal, fake_pools: Any) -> None:
    class Node(fake_pools.PoolNode):
        def read(self, path: str) -> bytes:
            return struct.pack("4L", 6, page, 0, 0) if path == "/proc/self/auxv" else super().read(path)

    node = Node()
    with_node(journal, node)
    node.most[SMALL] = node.compacted[SMALL] = 2
    with pytest.raises(CapabilityError, match=f"with {blocks} more free blocks of at least that size"):
        huge_pages.reserve(node, journal, SMALL, 3)


def test_what_a_dead_run_had_reserved_is_cleaned(tmp_path: Path, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    dead = Journal.open(LocalNode(), tmp_path / "state", "dead")
    with_node(dead, node)
    huge_pages.reserve(node, dead, SMALL, 30)
    text = dead._file.read_text().replace('"pid": ', '"pid": 1').replace('"start": ', '"start": 9')
    dead._file.write_text(text)
    import os

    os.close(dead._number)
    assert any("wrote 0 back" in sentence for sentence in clean(node, tmp_path / "state"))
    assert node.total[SMALL] == 0


def test_the_undo_survives_its_text() -> None:
    undo = ReleaseSetting(key="x")
    assert UNDO.validate_python(undo.model_dump(mode="json")) == undo
