from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from pgherd.host.swap_areas import SwapArea
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment, Swap
from pgherd.node.local import LocalNode
from pgherd.prepare import hosts
from pgherd.prepare.hosts import choose_swap, describe_swap, with_swap
from pgherd.study.shared_options import SwapRequest

NODE, MB, GB = LocalNode(), 2**20, 2**30
FACTS = HostFacts(hostname="h", kernel="6", cores=2, logical_cpus=2, memory=8 * GB, memory_available=6 * GB)


@pytest.fixture
def able(monkeypatch):
    """A host on which all swap can be made, and that has none; what was checked."""
    checked = []
    monkeypatch.setattr(hosts.host_swap, "check", lambda node, swap: checked.append(swap))
    monkeypatch.setattr(hosts, "areas", lambda node: [])
    return checked


def ask(overcommitted=True, budget=2 * GB, **given):
    asked = SwapRequest(**given)
    return choose_swap(NODE, asked, size=GB, overcommitted=overcommitted, cache=Path("/cache"), facts=FACTS, budget=budget)


def test_zram_where_memory_is_overcommitted_and_none_where_it_is_not(able):
    swap, said = ask()
    assert swap == Swap(kind="zram", size=GB) == able[0]
    assert said == ["Swap: zram of 1 GB, created for this run. The containers use at most this swap."]
    assert ask(overcommitted=False) == (Swap(kind="none"), [])


def test_what_is_asked_for_is_taken(able):
    swap, _ = ask(swap="zram", swap_size="512MB", zram_algorithm="lz4", zram_mem_limit="100MB")
    assert swap == Swap(kind="zram", size=512 * MB, algorithm="lz4", memory=100 * MB)
    assert ask(overcommitted=False, swap="file")[0] == Swap(kind="file", size=GB, path="/cache")
    assert ask(swap="file", swap_dir="/srv/x")[0].path == "/srv/x"


def test_what_cannot_be_had_is_none_unless_it_was_asked_for(able, monkeypatch):
    def refuse(node, swap):
        raise CapabilityError("it takes root")

    monkeypatch.setattr(hosts.host_swap, "check", refuse)
    assert ask() == (Swap(kind="none"), ["Warning: no swap for memory that does not fit: it takes root."])
    with pytest.raises(CapabilityError, match="it takes root"):
        ask(swap="zram")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"swap": "none", "swap_size": "1GB"}, "--swap-size 1GB is set, but the run creates no swap"),
        ({"overcommitted": False, "zram_algorithm": "lz4"}, "--zram-algorithm lz4"),
        ({"swap": "zram", "swap_dir": "/srv"}, "the swap is zram"),
        ({"swap": "file", "zram_mem_limit": "1GB"}, "--zram-mem-limit is for compressed swap"),
        ({"swap": "zram", "zram_algorithm": "LZ 4"}, "--zram-algorithm"),
        ({"swap": "zram", "swap_size": "0"}, "the swap is invalid"),
    ],
)
def test_what_contradicts_itself_is_refused(able, given, says):
    with pytest.raises(UsageError, match=says):
        ask(**given)


def test_memory_that_zram_may_need_is_said(able):
    _, said = ask(budget=int(5.5 * GB))
    assert "zram may take up to 1 GB" in said[-1] and "512 MB are free" in said[-1]
    _, said = ask(budget=int(5.5 * GB), zram_mem_limit="256MB")
    assert len(said) == 1


def test_the_hosts_own_swap_is_named(able, monkeypatch):
    monkeypatch.setattr(hosts, "areas", lambda node: [SwapArea("/dev/sda2", "partition", GB, 0, -2)])
    assert "/dev/sda2" in ask()[1][-1]
    assert "cannot use the host's" in ask(swap="none")[1][0]


@dataclass(frozen=True)
class Half:
    """What of a PreparedStudy matters here."""

    environment: RunEnvironment
    host_changes: tuple[str, ...] = ("groups",)
    confirm: tuple[str, ...] = ()


def test_swap_is_among_what_is_changed_and_confirmed():
    before = Half(RunEnvironment(runtime="cgroup", cores=2, memory=GB))
    swap = Swap(kind="file", size=GB, path="/srv")
    after = with_swap(before, swap)
    assert after.environment.swap == swap
    assert after.confirm == (describe_swap(swap),) and after.host_changes == ("groups", describe_swap(swap))
    assert "a swap file of 1 GB in /srv" in describe_swap(swap)
    nothing = with_swap(before, Swap(kind="none"))
    assert nothing == replace(before, environment=before.environment.model_copy(update={"swap": Swap(kind="none")}))
    assert with_swap(before, None) is before


def test_a_size_is_read_with_the_options():
    with pytest.raises(ValidationError, match="'lots' is not a memory size"):
        SwapRequest(swap="zram", swap_size="lots")
