"""Databases that share a host as virtual machines: layouts deployed, loads switched together, memory taken by balloons, all accounted for.

The processors are emulated here unless the machine has KVM: what is tested is that it works.
"""

from __future__ import annotations

import json

import pytest

from pgherd.host import ksm
from pgherd.host.facts import gather
from pgherd.node.local import LocalNode

NODE, MB = LocalNode(), 2**20
FINE = (0, 1)
SLOW = ("the machine is busy", "never ran together")
SMALL = (
    "--runtime",
    "vm",
    "--vcpus",
    "1",
    "--memory",
    "384MB",
    "--workload",
    "select-only",
    "--scale",
    "1",
    "--shared-buffers-percent",
    "20",
)
MEMORY = 384 * MB
PAIR = ("--busy-clients", "2", "--quiet-clients", "1", "--periods", "2")
PATIENCE = (("5s", "2s"), ("60s", "30s"))
"""Ramp-up and period. On a machine that is busy an emulated processor may take a minute to let a client in, and seconds for a transaction;
then it is tried with more patience."""

pytestmark = pytest.mark.timeout(2400)


@pytest.fixture
def guests(guests, pgherd):
    """Skips also where the guests' memory cannot be short."""
    facts = gather(NODE)
    if facts.cgroup_writable is None:
        pytest.skip(f"no control groups can be made here: {facts.cgroup_missing}")
    pgherd.patience = 1200.0  # an emulated processor boots slowly, on a busy machine very slowly


def consolidated(pgherd, *arguments):
    """The document of a run, and its trials by their points; nothing is said of speed where processors were emulated."""
    for ramp, period in PATIENCE:
        timed = ("--warmup", ramp, "--period-length", period)
        ended = pgherd("consolidation", *SMALL, *PAIR, *arguments, *timed, "--no-report", "--json", "--runs-dir", str(pgherd.runs / ramp))
        assert ended.code in FINE, ended
        trials = [json.loads(file.read_text()) for file in sorted((pgherd.runs / ramp).glob("*/trials/[0-9]*/trial.json"))]
        errors = [trial["error"] for trial in trials if trial["error"]]
        assert trials and all(any(reported in error for reported in SLOW) for error in errors), errors
        finished = {place(trial): trial for trial in trials if not trial["error"]}
        if all(place(trial) in finished and worked(trial) for trial in trials):
            break
    document = json.loads(ended.out)
    if any(values.get("emulated") for trial in trials for phase in trial["phases"] for values in phase["metrics"].values()):
        assert document["answer"].startswith("Functional only")
        assert not {"consolidation", "periods"} & set(document["tables"])
        assert not any(finding["unit"] in ("tps", "new orders/min", "ratio") for finding in document["findings"].values())
    return document, finished


def place(trial):
    """A trial's layout and its overcommitment."""
    return trial["trial"]["point"]["layout"], trial["trial"]["point"]["overcommit"]


def worked(trial):
    """Whether every database has ended a transaction in every period."""
    return all(target["transactions"] > 0 for phase in trial["phases"] for target in phase["targets"])


def test_layouts_with_one_guest_and_with_two(guests, pgherd):
    """shared-container has two servers in one guest, dedicated a guest for each; both switch their loads together."""
    _, result = consolidated(pgherd, "--schemes", "shared-container,dedicated")
    for layout, names in (("shared-container", ["all"]), ("dedicated", ["db1", "db2"])):
        trial = result[layout, 0.0]
        assert worked(trial)
        for phase in trial["phases"]:
            assert len(phase["targets"]) == 2
            assert phase["skew"] is not None
            for name in names:
                assert phase["metrics"][f"guest:{name}"]["guest.memory_configured"] == MEMORY * (2 if layout == "shared-container" else 1)
                assert phase["metrics"][f"container:{name}"]["memory.usage"] > 64 * MB, "its QEMU is charged to the container"
        loads = [phase["loads"] for phase in trial["trial"]["phases"]]
        busy = [max(load, key=lambda target: load[target]["clients"]) for load in loads]
        assert len(set(busy)) == 2, "each database is the busy one once"


@pytest.mark.long
def test_memory_that_the_host_is_short_of_is_taken_by_balloons_and_the_databases_own_feel_it(guests, pgherd):
    arguments = (
        "--schemes",
        "dedicated-balloon",
        "--overcommit",
        "0.1",
        "--vm-memory-policy",
        "virtio-balloon",
        "--swap",
        "none",
        "--client-placement",
        "inside",
    )
    memory = 448 * MB  # what is left holds all that two guests touch while they boot: without swap they could not have more
    document, result = consolidated(pgherd, *arguments, "--memory", f"{memory // MB}MB")
    assert set(result) == {("dedicated-balloon", 0.0), ("dedicated-balloon", 0.1)}
    short, plenty = (result["dedicated-balloon", level]["phases"][-1] for level in (0.1, 0.0))
    guests_of = [short["metrics"][f"guest:{name}"] for name in ("db1", "db2")]
    assert sum(guest["guest.target"] for guest in guests_of) < 2 * memory * 0.9, "what is left holds the hypervisors too"
    assert all(guest["guest.target"] >= guest["guest.minimum"] for guest in guests_of)
    for name in ("db1", "db2"):  # what the guest's kernel has given up is missing from what the database's balloon sees
        before, after = (phase["metrics"][f"server:{name}/pg"]["balloon.available"] for phase in (plenty, short))
        assert before - after > 0.5 * short["metrics"][f"guest:{name}"]["guest.ballooned"] > 0
    for trial in result.values():
        for phase in trial["phases"]:
            assert abs(phase["memory"]["worst"]) < 0.05, phase["memory"]
    rows = [row for row in document["tables"]["guest_memory"] if "0.1" in row["point"]]
    assert {row["guest"] for row in rows} == {"db1", "db2"} and all(row["ballooned"]["value"] > 0 for row in rows)


@pytest.mark.long
def test_all_databases_in_one_server_and_each_with_a_balloon_while_equal_pages_are_merged(guests, pgherd):
    """shared-server and dedicated-balloon; what merging saves is said of the host and of each guest."""
    if not NODE.exists(ksm.RUN):
        pytest.skip("this kernel merges no equal pages")
    before = NODE.read(ksm.RUN)
    document, result = consolidated(pgherd, "--schemes", "shared-server,dedicated-balloon", "--vm-ksm", "--yes")
    for layout, names in (("shared-server", ["all"]), ("dedicated-balloon", ["db1", "db2"])):
        assert worked(result[layout, 0.0])
        for phase in result[layout, 0.0]["phases"]:
            host = phase["metrics"]["host"]
            assert host["ksm.saved"] + host["ksm.unshared"] > 0, "the guests' memory is mergeable, and was looked at"
            assert phase["metrics"]["platform:balloon-manager"]["cpu.usage"] > 0
            assert all("guest.ksm_merged" in phase["metrics"][f"guest:{name}"] for name in names)
    assert len(document["tables"]["ksm"]) == 4 and all("ksm_merged" in row for row in document["tables"]["guest_memory"])
    assert NODE.read(ksm.RUN) == before


@pytest.mark.long
def test_order_entry_while_locked_memory_is_missing_and_guests_are_promised_different_things(guests, pgherd):
    arguments = (
        "--workload",
        "orders",
        "--memory",
        "448MB",
        "--schemes",
        "dedicated",
        "--overcommit",
        "0.1",
        "--overcommit-by",
        "mlock",
        "--swap",
        "zram",
        "--yes",
    )
    promised = ("--vm-memory-policy", "virtio-balloon", "--vm-memory-min", "200MB", "--vm-memory-shares", "db1=2", "--vm-idle-tax", "0.5")
    _, result = consolidated(pgherd, *arguments, *promised)
    short = result["dedicated", 0.1]["phases"][-1]["metrics"]
    assert short["container:locked-memory"]["memory.usage"] > 0.09 * 2 * 448 * MB
    assert all(short[f"guest:{name}"]["guest.target"] >= short[f"guest:{name}"]["guest.minimum"] == 200 * MB for name in ("db1", "db2"))
    assert sum(short[f"guest:{name}"]["guest.ballooned"] for name in ("db1", "db2")) > 0
    containers = result["dedicated", 0.1]["trial"]["deployment"]["hosts"][0]["containers"]
    assert [container["vm_memory_shares"] for container in containers] == [2.0, 1.0]


@pytest.mark.long
def test_a_working_set_in_guests_that_report_what_is_free(guests, pgherd):
    arguments = (
        "--runtime",
        "vm",
        "--vm-memory-policy",
        "free-page-reporting",
        "--vcpus",
        "1",
        "--scale",
        "32",
        "--clients",
        "1",
        "--vary",
        "memory",
    )
    sizes = ("--shared-buffers", "40MB", "--memory-sizes", "256MB,320MB")
    ended = pgherd("working-set", *arguments, *sizes, "--duration", "3s", "--warmup", "10s", "--no-report", "--yes", "--json")
    assert ended.code in FINE, ended
    trials = pgherd.trials()
    assert [trial["error"] for trial in trials] == [None] * len(trials) and len(trials) >= 2
    for trial in trials:
        (phase,) = trial["phases"]
        assert phase["targets"][0]["transactions"] > 0
        guest = phase["metrics"]["guest:db01"]
        assert guest["guest.memory_configured"] == trial["trial"]["point"]["memory"] * MB == guest["guest.target"], (
            "nobody moves its balloon"
        )
