"""Databases in virtual machines, as any study has them. The processors are emulated here: what is tested is that it works."""

from __future__ import annotations

import pytest

from pgherd.node.local import LocalNode

NODE = LocalNode()
_VM = ("--runtime", "vm", "--vcpus", "1", "--memory", "384MB", "--warmup", "3s", "--duration", "3s")


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
        assert guest["cpu.user"] >= 0 and guest["emulated"] in (0, 1), "its own kernel was read, on the host's clock"
        assert metrics[f"container:{name}"]["cpu.usage"] > 0.05, "its QEMU is accounted for as the container"
        assert metrics[f"server:{name}/pg"]["db.xact_commit"] > 0, "its server was asked from the host"
    if metrics["guest:db01"]["emulated"]:
        analysis = pgherd.record()["analysis"]
        assert analysis["answer"].startswith("Functional only") and "density" not in analysis["tables"]
        assert not any("tps" in line for line in ended.out.splitlines()), "nothing is said of throughput"


def test_killed_with_a_guest_up(guests, pgherd):
    process = pgherd.start_density("--databases", "1", *_VM, "--duration", "600s", "--time-budget", "700s")
    pgherd.wait_until(lambda: pgherd.guests(), pause=0.2)
    process.kill()
    pgherd.end(process)
    assert pgherd("clean").code == 0
    assert not pgherd.guests()
