"""Databases in virtual machines, as any study has them. The processors are emulated here: what is tested is that it works."""

from __future__ import annotations

import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import running
from pgherd.runtimes.vm.runtime import VmRuntime

NODE = LocalNode()
_VM = ("--runtime", "vm", "--vcpus", "1", "--memory", "384MB", "--ramp", "3s", "--seconds", "3s")


pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def guests(tmp_path, pgherd):
    """Skips where no guest can be; afterwards none of ours runs."""
    journal = Journal.open(NODE, tmp_path / "state", "probe")
    able = VmRuntime(NODE, journal, gather(NODE), "probe").capabilities()
    journal.close()
    if not able.available:
        pytest.skip(able.note)
    pgherd.patience = 400.0  # an emulated processor boots slowly, on a busy machine very slowly
    yield
    assert not ours(pgherd)


def ours(pgherd) -> list[running.Running]:
    """The guests of this program's run: their disks lie in its cache."""
    return [guest for guest in running.find_all(NODE) if any(str(pgherd.cache) in file for file in guest.files)]


def test_density_in_two_guests(guests, pgherd):
    ended = pgherd.density("--points", "2", *_VM, "--repeats", "1", "--budget", "8s")
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
    process = pgherd.start_density("--points", "1", *_VM, "--seconds", "600s", "--budget", "700s")
    pgherd.wait_until(lambda: ours(pgherd), pause=0.2)
    process.kill()
    pgherd.end(process)
    assert pgherd("clean").code == 0
    assert not ours(pgherd)
