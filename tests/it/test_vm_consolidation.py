"""Databases that share a host as virtual machines: schemes deployed, loads switched together, memory taken by balloons, all accounted for.

The processors are emulated here unless the machine has KVM: what is tested is that it works.
"""

from __future__ import annotations

import json

import pytest

from pgherd.host.facts import gather
from pgherd.node.local import LocalNode

NODE, MB = LocalNode(), 2**20
FINE = (0, 1)
SLOW = ("the machine is busy", "never ran together")
SMALL = ("--runtime", "vm", "--vcpus", "1", "--memory", "384MB", "--workload", "select-only", "--scale", "1", "--buffers", "20")
MEMORY = 384 * MB
PAIR = ("--high", "2", "--low", "1", "--periods", "2", "--period", "2s")
RAMPS = ("5s", "60s")
"""On a machine that is busy an emulated processor may take a minute to let a client in; then it is tried with more patience."""

pytestmark = pytest.mark.timeout(2400)


@pytest.fixture
def guests(guests, pgherd):
    """Skips also where the guests' memory cannot be short."""
    facts = gather(NODE)
    if facts.cgroup_writable is None:
        pytest.skip(f"no control groups can be made here: {facts.cgroup_missing}")
    pgherd.patience = 1200.0  # an emulated processor boots slowly, on a busy machine very slowly


def consolidated(pgherd, *words):
    """The document of a run, and its trials by their points; nothing is said of speed where processors were emulated."""
    for ramp in RAMPS:
        ended = pgherd("consolidation", *SMALL, *PAIR, *words, "--ramp", ramp, "--no-report", "--json", "--runs", str(pgherd.runs / ramp))
        assert ended.code in FINE, ended
        trials = [json.loads(file.read_text()) for file in sorted((pgherd.runs / ramp).glob("*/trials/[0-9]*/trial.json"))]
        errors = [trial["error"] for trial in trials if trial["error"]]
        assert trials and all(any(told in error for told in SLOW) for error in errors), errors
        done = {(trial["trial"]["point"]["scheme"], trial["trial"]["point"]["rate"]): trial for trial in trials if not trial["error"]}
        if all((trial["trial"]["point"]["scheme"], trial["trial"]["point"]["rate"]) in done for trial in trials):
            break
    document = json.loads(ended.out)
    if any(values.get("emulated") for trial in trials for phase in trial["phases"] for values in phase["metrics"].values()):
        assert document["answer"].startswith("Functional only")
        assert not {"consolidation", "periods"} & set(document["tables"])
        assert not any(finding["unit"] in ("tps", "new orders/min", "ratio") for finding in document["findings"].values())
    return document, done


def test_schemes_with_one_guest_and_with_two(guests, pgherd):
    """Scheme 2 has two servers in one guest, scheme 3 a guest for each; both switch their loads together."""
    _, found = consolidated(pgherd, "--schemes", "2,3")
    for scheme, names in ((2, ["all"]), (3, ["db1", "db2"])):
        trial = found[scheme, 0.0]
        for phase in trial["phases"]:
            assert len(phase["targets"]) == 2 and all(target["transactions"] > 0 for target in phase["targets"])
            assert phase["skew"] is not None
            for name in names:
                assert phase["metrics"][f"guest:{name}"]["guest.memory"] == MEMORY * (2 if scheme == 2 else 1)
                assert phase["metrics"][f"container:{name}"]["memory.usage"] > 64 * MB, "its QEMU is charged to the container"
        loads = [phase["loads"] for phase in trial["trial"]["phases"]]
        busy = [max(load, key=lambda target: load[target]["clients"]) for load in loads]
        assert len(set(busy)) == 2, "each database is the busy one once"


@pytest.mark.long
def test_memory_that_the_host_is_short_of_is_taken_by_balloons(guests, pgherd):
    words = ("--schemes", "3", "--rates", "0.1", "--guest-memory", "guest-balloon", "--swap", "none", "--client-place", "inside")
    memory = 448 * MB  # what is left holds all that two guests touch while they boot: without swap they could not have more
    document, found = consolidated(pgherd, *words, "--memory", f"{memory // MB}MB")
    assert set(found) == {(3, 0.0), (3, 0.1)}
    short = found[3, 0.1]["phases"][-1]
    guests_of = [short["metrics"][f"guest:{name}"] for name in ("db1", "db2")]
    assert sum(guest["guest.target"] for guest in guests_of) < 2 * memory * 0.9, "what is left holds the hypervisors too"
    assert all(guest["guest.target"] >= guest["guest.minimum"] for guest in guests_of)
    for trial in found.values():
        for phase in trial["phases"]:
            assert abs(phase["memory"]["worst"]) < 0.05, phase["memory"]
    rows = [row for row in document["tables"]["guest_memory"] if "0.1" in row["point"]]
    assert {row["guest"] for row in rows} == {"db1", "db2"} and all(row["ballooned"]["value"] > 0 for row in rows)
