from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgherd.analysis.guest_memory_breakdown import MemoryBreakdown
from pgherd.model.analysis import Analysis
from pgherd.model.deployment import Container, Deployment, Host, VmOptions
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.report.guest_memory_figures import BANDS, bands, read
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
            reported = {
                "guest.memory_configured": 1000 * MB,
                "guest.memory_balloon_actual": (1000 - given_up) * MB,
                "guest.target": (1000 - given_up - 20) * MB,
            }
            if balloon:
                yield t, "guest_balloon", f"guest:{name}", reported | {"guest.free": 250 * MB}
            if process:
                yield t + 0.01, "qemu_process", f"guest:{name}", {"qemu.anon": (resident + 50) * MB, "qemu.shared": 10 * MB}
                yield BEGAN - 2, "qemu_process", f"guest:{name}", {"qemu.overhead": 60 * MB}
            group = {"memory.anon": (resident + 60) * MB, "memory.shmem": 0.0, "memory.swap": swapped * MB}
            yield t, "cgroup_memory", f"container:{name}", group
        yield t, "balloon", "server:a/pg", {"balloon.bytes": 20 * (i + 2) * MB}
        yield t, "swap", "swap:ours", {"swap.used": 200 * MB}
        if zram:
            yield t, "zram", "zram:zram1", {"zram.orig_data": 150 * MB}


def result(directory: Path, rows, name="0001", point=None, runtime="vm") -> TrialResult:
    (directory / "trials" / name).mkdir(parents=True)
    write_samples(directory / "trials" / name, sorted(rows, key=lambda row: row[0]))
    host = Host(memory=int(1400 * MB), containers=(Container(name="a", runtime=runtime), Container(name="b", runtime=runtime)))
    phases = (Phase(name="first", warmup=2, seconds=5), Phase(name="second", warmup=0, seconds=5))
    trial = Trial(point=point or {"scheme": 3}, deployment=Deployment(hosts=(host,)), phases=phases)
    results = [
        PhaseResult(phase=item.name, start=BEGAN + 5 * i, end=BEGAN + 5 * i + 5, overlap=1, targets=[]) for i, item in enumerate(phases)
    ]
    return TrialResult(id=name, trial=trial, started=BEGAN - 5, ended=BEGAN + 12, phases=results)


def test_every_second_adds_up(tmp_path) -> None:
    memories = read(tmp_path, result(tmp_path, samples()))
    assert memories is not None and list(memories.guests) == ["a", "b"]
    assert memories.borders == [("first", 0, 5), ("second", 5, 10)]
    for guest in memories.guests.values():
        assert len(guest.parts) >= 12 and guest.by_process
        for _, item in guest.parts:
            assert item.accounted + item.unaccounted == pytest.approx(1000 * MB)
    assert memories.worst < 0.001
    at, item = memories.guests["a"].parts[7]
    assert at == pytest.approx(5.01)
    assert item.ballooned / MB == pytest.approx(210, abs=1) and item.by_pg_balloon / MB == pytest.approx(140, abs=1)
    assert memories.guests["a"].target[7] == (5, 770 * MB)
    _, other = memories.guests["b"].parts[3]
    assert (other.compressed / MB, other.swapped / MB) == pytest.approx((75, 25)), "three quarters of the host's swap are in zram"


def test_without_the_process_its_control_group_stands_for_it(tmp_path) -> None:
    memories = read(tmp_path, result(tmp_path, samples(process=False, zram=False)))
    assert memories is not None
    guest = memories.guests["b"]
    assert not guest.by_process
    _, item = guest.parts[3]
    assert (item.resident / MB, item.swapped / MB, item.compressed) == pytest.approx((760, 100, 0))


def test_without_guests_or_phases_there_is_none(tmp_path) -> None:
    finished = result(tmp_path, samples(balloon=False))
    assert read(tmp_path, finished) is None
    assert read(tmp_path, finished.model_copy(update={"phases": []})) is None
    assert read(tmp_path / "elsewhere", finished) is None


def inputs(directory, results):
    record = RunRecord(run="r", study="consolidation", options={}, started=0, pgherd="0")
    return FigureInputs(record, Analysis(answer="", grade="A"), results, directory)


def draw(given):
    figure = drawing.builders("density")["guest_memory"](given)
    return figure, json.dumps(drawing.specification(figure, validate=True)).replace("\\", "")


def test_it_says_who_gives_up_what(tmp_path) -> None:
    figure, text = draw(inputs(tmp_path, [result(tmp_path, samples())]))
    assert figure.title == (
        "a releases up to 330 MB of its 1000 MB by its balloon, up to 220 MB of it from a database; "
        "the host compresses or swaps up to 100 MB of b"
    )
    assert "scheme 3: a" in text and "scheme 3: b" in text and "first" in text
    assert all(band in text for band in BANDS)
    assert "within 0" in figure.caption and figure.sources == (drawing.SAMPLES,)
    assert drawing.svg(figure, prefix="guest").startswith("<svg")


def test_a_database_of_another_guest_is_not_named(tmp_path) -> None:
    rows = []
    for t, sampler, entity, values in samples():
        if sampler == "balloon":
            entity = "server:b/pg"
        elif (sampler, entity) == ("guest_balloon", "guest:b"):
            values = values | {"guest.memory_balloon_actual": 900 * MB}
        rows.append((t, sampler, entity, values))
    figure, _ = draw(inputs(tmp_path, [result(tmp_path, rows)]))
    assert figure.title.startswith("a releases up to 330 MB of its 1000 MB by its balloon; ")


def test_no_balloon_is_said(tmp_path) -> None:
    rows = [
        (
            t,
            sampler,
            entity,
            values | ({"guest.memory_balloon_actual": values["guest.memory_configured"]} if "guest.memory_configured" in values else {}),
        )
        for t, sampler, entity, values in samples()
    ]
    figure, _ = draw(inputs(tmp_path, [result(tmp_path, rows)]))
    assert figure.title.startswith("No guest releases memory by its balloon")


def test_the_stack_is_the_guests_memory() -> None:
    breakdown = MemoryBreakdown(1000, 400, 50, 250, 90, 30, 100, 80)
    assert list(bands(breakdown)) == list(BANDS) and sum(bands(breakdown).values()) == 1000
    balloon = {name: size for name, size in bands(breakdown).items() if name.startswith("balloon: ")}
    assert list(balloon.values()) == [50, 250] and sum(balloon.values()) == breakdown.ballooned, (
        "the database's part belongs to the balloon"
    )
    assert sum(bands(MemoryBreakdown(1000, 900, 300, 0, 0, 0, 0, -200)).values()) == 1200, "an excess extends beyond the frame"


def test_where_the_group_stands_for_the_process_it_is_said(tmp_path) -> None:
    figure, _ = draw(inputs(tmp_path, [result(tmp_path, samples(process=False))]))
    assert "including its hypervisor" in figure.caption


def test_merged_pages_are_said_to_be_counted_in_each_guest(tmp_path) -> None:
    outcome = result(tmp_path, samples())
    (host,) = outcome.trial.deployment.hosts
    request = tuple(container.model_copy(update={"vm": VmOptions(merge=True)}) for container in host.containers)
    deployment = Deployment(hosts=(host.model_copy(update={"containers": request}),))
    merging = outcome.model_copy(update={"trial": outcome.trial.model_copy(update={"deployment": deployment})})
    assert "Pages merged by KSM count in each guest" in draw(inputs(tmp_path, [merging]))[0].caption
    assert "KSM" not in draw(inputs(tmp_path, [outcome]))[0].caption


def test_runs_without_guests_miss_nothing(tmp_path) -> None:
    finished = result(tmp_path, samples(), runtime="cgroup")
    for requested in (inputs(tmp_path, [finished]), inputs(None, [finished])):
        with pytest.raises(FigureUnavailable) as reason:
            draw(requested)
        assert str(reason.value) == ""


def test_guests_that_were_not_seen_are_missed(tmp_path) -> None:
    finished = result(tmp_path, samples(balloon=False))
    with pytest.raises(FigureUnavailable, match="not measured"):
        draw(inputs(tmp_path, [finished]))
