from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.report.guest_memory_figures import read
from pgherd.store.samples import write_samples

MB, BEGAN = 2.0**20, 1_000_000.0


def samples(*, process=True, zram=True, balloon=True):
    """Ten seconds of two guests of 1000 MB: a gives up 30 MB a second, two thirds of it from its database; of b 100 MB are swapped."""
    for i in range(-2, 11):
        t = BEGAN + i
        for name in ("a", "b"):
            given_up = 30 * (i + 2) if name == "a" else 0
            swapped = 100 if name == "b" else 0
            resident = 800 - given_up - swapped
            told = {"guest.memory": 1000 * MB, "guest.actual": (1000 - given_up) * MB, "guest.target": (1000 - given_up - 20) * MB}
            if balloon:
                yield t, "guest_balloon", f"guest:{name}", told | {"guest.free": 250 * MB}
            if process:
                yield t + 0.01, "qemu_process", f"guest:{name}", {"qemu.anon": (resident + 50) * MB, "qemu.shared": 10 * MB}
                yield BEGAN - 2, "qemu_process", f"guest:{name}", {"qemu.overhead": 60 * MB}
            group = {"memory.anon": (resident + 60) * MB, "memory.shmem": 0.0, "memory.swap": swapped * MB}
            yield t, "cgroup_memory", f"container:{name}", group
        yield t, "balloon", "server:a/pg", {"balloon.bytes": 20 * (i + 2) * MB}
        yield t, "swap", "swap:ours", {"swap.used": 200 * MB}
        if zram:
            yield t, "zram", "zram:zram1", {"zram.original": 150 * MB}


def result(directory: Path, rows, name="0001", point=None, runtime="vm") -> TrialResult:
    (directory / "trials" / name).mkdir(parents=True)
    write_samples(directory / "trials" / name, sorted(rows, key=lambda row: row[0]))
    host = Host(memory=int(1400 * MB), containers=(Container(name="a", runtime=runtime), Container(name="b", runtime=runtime)))
    phases = (Phase(name="first", ramp=2, seconds=5), Phase(name="second", ramp=0, seconds=5))
    trial = Trial(point=point or {"scheme": 3}, deployment=Deployment(hosts=(host,)), phases=phases)
    done = [PhaseResult(phase=one.name, start=BEGAN + 5 * i, end=BEGAN + 5 * i + 5, overlap=1, targets=[]) for i, one in enumerate(phases)]
    return TrialResult(id=name, trial=trial, started=BEGAN - 5, ended=BEGAN + 12, phases=done)


def test_every_second_adds_up(tmp_path) -> None:
    memories = read(tmp_path, result(tmp_path, samples()))
    assert memories is not None and list(memories.guests) == ["a", "b"]
    assert memories.borders == [("first", 0, 5), ("second", 5, 10)]
    for guest in memories.guests.values():
        assert len(guest.parts) >= 12 and guest.by_process
        for _, one in guest.parts:
            assert one.accounted + one.residue == pytest.approx(1000 * MB)
    assert memories.worst < 0.001
    at, one = memories.guests["a"].parts[7]
    assert at == pytest.approx(5.01)
    assert one.ballooned / MB == pytest.approx(210, abs=1) and one.by_database / MB == pytest.approx(140, abs=1)
    assert memories.guests["a"].target[7] == (5, 770 * MB)
    _, other = memories.guests["b"].parts[3]
    assert (other.compressed / MB, other.swapped / MB) == pytest.approx((75, 25)), "three quarters of the host's swap are in zram"


def test_without_the_process_its_control_group_stands_for_it(tmp_path) -> None:
    memories = read(tmp_path, result(tmp_path, samples(process=False, zram=False)))
    assert memories is not None
    guest = memories.guests["b"]
    assert not guest.by_process
    _, one = guest.parts[3]
    assert (one.resident / MB, one.swapped / MB, one.compressed) == pytest.approx((760, 100, 0))


def test_without_guests_or_phases_there_is_none(tmp_path) -> None:
    done = result(tmp_path, samples(balloon=False))
    assert read(tmp_path, done) is None
    assert read(tmp_path, done.model_copy(update={"phases": []})) is None
    assert read(tmp_path / "elsewhere", done) is None
