"""Databases in virtual machines, as any study has them. The processors are emulated here: what is tested is that it works."""

from __future__ import annotations

import pytest

from pgherd.node.local import LocalNode

NODE, MB = LocalNode(), 2**20
_VM = ("--runtime", "vm", "--vcpus", "1", "--memory", "384MB", "--warmup", "10s", "--duration", "3s")
_BALLOON = ("guest.target", "guest.memory_balloon_actual")


pytestmark = pytest.mark.timeout(900)


def test_density_in_two_guests(guests, pgherd):
    ended = pgherd.density("--databases", "2", *_VM, "--repeats", "1", "--time-budget", "8s")
    assert ended.code in (0, 1), ended
    trials = pgherd.trials()
    assert trials and all(trial["error"] is None for trial in trials), [trial["error"] for trial in trials]
    two = next(trial for trial in trials if trial["trial"]["point"]["databases"] == 2)["phases"][0]
    assert [target["target"].split("/")[1] for target in two["targets"]] == ["db01", "db02"]
    assert all(target["transactions"] > 0 for target in two["targets"])
    metrics = two["metrics"]
    for name in ("db01", "db02"):
        guest = metrics[f"guest:{name}"]
        assert guest["memory.total"] < 384 * 2**20, "its own kernel was read, not the host's"
        assert metrics[f"container:{name}"]["cpu.usage"] > 0.05, "its QEMU is accounted for as the container"
        assert metrics[f"server:{name}/pg"]["db.xact_commit"] > 0, "its server was asked from the host"
    if metrics["guest:db01"]["emulated"]:
        analysis = pgherd.record()["analysis"]
        assert analysis["answer"].startswith("Functional only") and "density" not in analysis["tables"]
        assert not any("tps" in line for line in ended.out.splitlines()), "nothing is said of throughput"


@pytest.mark.long  # two minutes
def test_a_victim_and_an_aggressor_in_guests(guests, pgherd):
    """One guest with two servers, then two guests."""
    pgherd.patience = 800.0
    load = ("--aggressors", "wal", "--workload", "select-only", "--rate", "450", "--clients", "1", "--aggressor-clients", "1")
    rest = ("--warmup", "15s", "--scale", "1", "--repeats", "1", "--yes", "--json")  # a busy machine takes seconds to let a client in
    ended = pgherd("isolation", "--schemes", "shared-container,vm", *load, *_VM, *rest)
    assert ended.code in (0, 1), ended
    trials = {(trial["trial"]["point"]["scheme"], trial["trial"]["point"]["aggressor"]): trial for trial in pgherd.trials()}
    assert set(trials) == {(scheme, aggressor) for scheme in ("shared-container", "vm") for aggressor in ("none", "wal")}, ended
    for (scheme, aggressor), trial in trials.items():
        (phase,) = trial["phases"]
        names = {name for name in phase["metrics"] if name.startswith("guest:")}
        assert names == ({"guest:victim", "guest:aggressor"} if scheme == "vm" else {"guest:all"})
        transactions = {"victim" in target["target"]: target["transactions"] for target in phase["targets"]}
        assert transactions[True] > 0 and len(transactions) == (1 if aggressor == "none" else 2)


@pytest.mark.long  # three minutes
def test_a_guests_balloon_is_the_limit_that_changes_and_the_databases_own_makes_room(guests, pgherd):
    """A pool of 144 MB holds the database. A guest of 246 MB has no room for it."""
    pgherd.patience = 800.0
    words = ("--runtime", "vm", "--vcpus", "1", "--memory", "448MB", "--limits", "100,55,100", "--pools", "balloon", "--clients", "2")
    times = ("--warmup", "15s", "--duration", "30s", "--repeats", "1", "--time-budget", "1s")
    ended = pgherd("balloon", "limits", *words, *times, "--yes", "--json")
    assert ended.code in (0, 1), ended
    (trial,) = pgherd.trials()
    assert trial["error"] is None, trial["error"]
    started, less, restored = trial["phases"]
    targets, actual = ([phase["metrics"]["guest:server"][name] for phase in trial["phases"]] for name in _BALLOON)
    assert max(targets[0], actual[0]) == 448 * MB
    assert targets[1] < 300 * MB < targets[2], "means of the phases"
    assert actual[1] < 0.9 * actual[0] and actual[1] < actual[2]
    assert started["limited_after"] == {} and set(less["limited_after"]) == set(restored["limited_after"]) == {"server"}
    after = less["limited_after"]["server"]  # None: an emulated guest was too slow
    assert after is None or after > 0
    assert less["metrics"]["server:server/pg"]["balloon.bytes"] > started["metrics"]["server:server/pg"].get("balloon.bytes", 0)


def test_killed_with_a_guest_up(guests, pgherd):
    process = pgherd.start_density("--databases", "1", *_VM, "--duration", "600s", "--time-budget", "700s")
    pgherd.wait_until(lambda: pgherd.guests(), pause=0.2)
    process.kill()
    pgherd.end(process)
    assert pgherd("clean").code == 0
    assert not pgherd.guests()
