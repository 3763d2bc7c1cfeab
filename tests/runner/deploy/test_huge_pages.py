"""Pages of the servers of a fleet, with simulated pools; tests/it reserves real ones."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.host import shared_settings
from pgherd.host.journal import Journal
from pgherd.model.deployment import Server
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres.huge_pages import HugePageNeed
from pgherd.runner.deploy import huge_pages

SMALL, LARGE = 2 * 2**20, 2**30
MB = 2**20


@pytest.fixture(scope="module")
def fake_pools():
    spec = importlib.util.spec_from_file_location("fake_pools", Path(__file__).parents[2] / "host/fake_pools.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake_pools"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def node(fake_pools, tmp_path, monkeypatch):
    monkeypatch.setattr(shared_settings, "LEDGER", tmp_path / "holds.json")
    return fake_pools.PoolNode()


@pytest.fixture
def journal(node, tmp_path):
    opened = Journal.open(LocalNode(), tmp_path / "state", "run")
    opened._node = node
    yield opened
    opened.close()


@pytest.fixture
def fleet_pages(node, journal, monkeypatch):
    """Every server that insists on huge pages needs 100 of its size."""
    monkeypatch.setattr(
        huge_pages.huge_pages,
        "needed",
        lambda node, installation, settings, *_: HugePageNeed(huge_pages.huge_pages.page_size(node, settings), 100),
    )
    return huge_pages.HugePageManager(node, journal)


INSTANCE = SimpleNamespace(installation=None, data_dir="/data", account=None)


def server(settings=None, transparent=None):
    return Server(bin="/pg", version="18.1", settings=settings or {}, transparent_huge_pages=transparent)


ON = {"huge_pages": "on"}


def test_all_servers_share_one_pool_and_each_gives_back_its_part(fleet_pages, node, journal):
    entries = fleet_pages.reserve({("a", "pg"): (INSTANCE, server(ON)), ("b", "pg"): (INSTANCE, server(ON))})
    assert node.total[SMALL] == 200
    for number in entries["a", "pg"]:
        journal.undo(number)
    assert node.total[SMALL] == 100
    journal.play()
    assert node.total[SMALL] == 0


def test_servers_that_leave_pages_alone_change_nothing(fleet_pages, node, journal):
    wanted = {("a", "pg"): (INSTANCE, server()), ("b", "pg"): (INSTANCE, server({"huge_pages": "try"}))}
    assert fleet_pages.reserve(wanted) == {("a", "pg"): [], ("b", "pg"): []}
    assert node.total[SMALL] == 0 and journal.pending() == []


def test_transparent_pages_are_switched_while_a_server_wants_them(fleet_pages, node, journal):
    entries = fleet_pages.reserve({("a", "pg"): (INSTANCE, server({"huge_pages": "off"}, True))})
    assert node.shared == "always"
    for number in entries["a", "pg"]:
        journal.undo(number)
    assert node.shared == "never"


def test_all_or_nothing(fleet_pages, node, journal):
    """Together they do not fit, though each would; 100 of 2 MB fit, 100 of 1 GB never."""
    both = {("a", "pg"): (INSTANCE, server(ON)), ("b", "pg"): (INSTANCE, server({**ON, "huge_page_size": "1GB"}))}
    with pytest.raises(CapabilityError, match="100 huge pages of 2MB and 100 huge pages of 1GB take"):
        fleet_pages.reserve(both)
    assert node.total == {SMALL: 0, LARGE: 0} and journal.pending() == []


def test_what_the_kernel_cannot_give_is_given_back(fleet_pages, node, journal):
    node.most[SMALL] = node.compacted[SMALL] = 150
    with pytest.raises(CapabilityError, match="100 huge pages of 2MB were requested, but the kernel granted 50"):
        fleet_pages.reserve({("a", "pg"): (INSTANCE, server(ON)), ("b", "pg"): (INSTANCE, server(ON))})
    assert node.total[SMALL] == 0 and journal.pending() == []


def test_what_could_be_had_before_fails_a_trial_and_not_the_run(fleet_pages, node, journal):
    for number in fleet_pages.reserve({("a", "pg"): (INSTANCE, server(ON))})["a", "pg"]:
        journal.undo(number)
    node.most[SMALL] = node.compacted[SMALL] = 10
    with pytest.raises(TrialError, match="the kernel granted 10"):
        fleet_pages.reserve({("a", "pg"): (INSTANCE, server(ON))})
    with pytest.raises(CapabilityError):  # another size never could
        fleet_pages.reserve({("a", "pg"): (INSTANCE, server({**ON, "huge_page_size": "1GB"}))})


def test_what_others_took_of_a_servers_pages_is_reserved_again(fleet_pages, node, journal):
    wanted = {("a", "pg"): (INSTANCE, server(ON)), ("b", "pg"): (INSTANCE, server())}
    fleet_pages.reserve(wanted)
    assert fleet_pages.refill(wanted) == {}, "nothing was taken"
    node.used[SMALL] = 30  # a server that tries to get them, and does
    assert [len(numbers) for numbers in fleet_pages.refill(wanted).values()] == [1]
    assert node.total[SMALL] == 130
    node.used[SMALL], node.most[SMALL], node.compacted[SMALL] = 90, 130, 130
    with pytest.raises(TrialError, match="other processes have taken huge pages that were reserved for server a/pg; .* kernel granted 0"):
        fleet_pages.refill(wanted)
    node.used[SMALL] = 0
    journal.play()
    assert node.total[SMALL] == 0


def test_what_is_seen_of_a_server_is_kept_until_it_stops(fleet_pages, node, monkeypatch):
    text = (Path(__file__).parents[2] / "fixtures/metrics/smaps-1gb").read_bytes()
    monkeypatch.setattr(node, "read", lambda path: text if path == "/proc/4711/smaps" else pytest.fail(path))
    fleet_pages.poll(("a", "pg"), 4711)
    assert fleet_pages.readings()["server:a/pg"]["pages.size"] == LARGE
    fleet_pages.forget(("a", "pg"))
    assert fleet_pages.readings() == {}


def test_what_cannot_be_read_is_not_seen(fleet_pages):
    fleet_pages.poll(("a", "pg"), 2**22 + 1)
    assert fleet_pages.readings() == {}


@pytest.mark.parametrize(("memory", "fits"), [(None, True), (264 * MB, True), (263 * MB, False)])
def test_a_container_must_hold_the_pages_and_the_rest(memory, fits):
    need = HugePageNeed(SMALL, 100)
    if fits:
        huge_pages.require_room(need, memory)
    else:
        with pytest.raises(UsageError, match=r"100 huge pages of 2MB \(200 MB\) and at least 64 MB of other memory, but .* 263 MB"):
            huge_pages.require_room(need, memory)


def test_pages_are_tried_out_one_size_after_the_other(node, own_directories):
    node.memory = 3 * LARGE
    huge_pages.probe_huge_pages(node, {SMALL: 900, LARGE: 2})  # together they would not fit
    assert node.total == {SMALL: 0, LARGE: 0}
    node.most[LARGE] = node.compacted[LARGE] = 1
    with pytest.raises(CapabilityError, match="2 huge pages of 1GB were requested, but the kernel granted 1"):
        huge_pages.probe_huge_pages(node, {LARGE: 2})
    assert node.total == {SMALL: 0, LARGE: 0} and not shared_settings.LEDGER.exists()
    huge_pages.probe_huge_pages(node, {})
