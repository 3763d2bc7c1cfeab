"""Classes of hosts by runs: a density run, and the recorded disk run, whose numbers are from its files by jq."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyObjective
from pgherd.model.run import SCHEMA
from pgherd.prepare.fleet_files import read_classes
from pgherd.prepare.host_runs import measured_classes
from pgherd.store.run_directory import RunDirectory

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


def restore(name: str, root: Path) -> str:
    """Write a recorded run below ``root``, and return its name."""
    document = json.loads(lzma.decompress((RUNS / f"{name}.json.xz").read_bytes()))
    path = root / document["run"]["run"]
    for trial in document["trials"]:
        (path / "trials" / trial["id"]).mkdir(parents=True)
        (path / "trials" / trial["id"] / "trial.json").write_text(json.dumps(trial))
    (path / "run.json").write_text(json.dumps(document["run"]))
    return path.name


def classes_of(tmp_path: Path, text: str):
    (tmp_path / "h.yaml").write_text(f"classes:\n{text}")
    return read_classes(tmp_path / "h.yaml")


def test_several_runs_of_a_class_add_up(run_on_disk, tmp_path):
    root, density = run_on_disk.parent, run_on_disk.name
    record = json.loads((run_on_disk / "run.json").read_text())
    record["environment"] = {"runtime": "cgroup", "cores": 4, "memory": 2**31}
    (run_on_disk / "run.json").write_text(json.dumps(record))
    disk = restore("disk", root)
    (cpu,) = measured_classes([], [density], root)
    for runs in ([density, disk], [disk, density]):
        (found,) = measured_classes([], runs, root)
        assert found.capacity["cpu_cores"] == cpu.capacity["cpu_cores"] and found.capacity["memory_mb"] == cpu.capacity["memory_mb"]
        read, write = (found.capacity[name] for name in ("read_iops", "write_iops"))
        assert (read.value, write.value) == pytest.approx((103_333.02, 103_190.30)), "the largest means, all below 1 ms"
        assert read.source == f"run {disk}" and read.low < read.value and read.high is None, "the latency limit was not reached"
        assert any("measured one after the other" in note for note in found.notes)
    stated = classes_of(tmp_path, "- {name: a, capacity: {cpu_cores: 4, memory_mb: 7, read_iops: 5, wal_mb_s: 3}}\n")
    (found,) = measured_classes(stated, [disk], root)
    assert (found.capacity["cpu_cores"].value, found.capacity["memory_mb"].value, found.capacity["wal_mb_s"].value) == (4, 7, 3)
    assert found.capacity["read_iops"].value == pytest.approx(103_333.02), "in place of the smaller stated one"
    larger = classes_of(tmp_path, "- {name: a, capacity: {cpu_cores: 4, read_iops: 500000}}\n")
    assert measured_classes(larger, [disk], root)[0].capacity["read_iops"].value == 500_000, "more than was measured, below the limit"
    limit = "latency: {objective: p95=5ms, low: 10, value: 12, high: 14}"
    (kept,) = measured_classes(classes_of(tmp_path, f"- {{name: a, capacity: {{cpu_cores: 4}}, {limit}}}\n"), [disk], root)
    assert kept.latency is not None and kept.latency.value == 12, "a disk run measures no such limit"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": "interrupted"}, "is not finished (interrupted)"),
        ({"analysis": {"grade": "C", "grade_reason": "all trials are tainted"}}, "is an indication only: all trials are tainted"),
        ({}, ""),
    ],
)
def test_a_run_that_supports_less_says_so(run_on_disk, changes, said):
    record = json.loads((run_on_disk / "run.json").read_text())
    record |= {**changes, "analysis": record["analysis"] | changes.get("analysis", {})}
    (run_on_disk / "run.json").write_text(json.dumps(record))
    (found,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    assert (
        any(said in note for note in found.notes) if said else not any("indication" in note or "finished" in note for note in found.notes)
    )


def test_a_run_that_adds_nothing_is_refused(run_on_disk, tmp_path):
    root, name = run_on_disk.parent, run_on_disk.name
    classes = classes_of(tmp_path, "- {name: a, capacity: {cpu_cores: 4}}\n")
    for given, texts in (([], [name, name]), (classes, [name, f"a={name}"]), ([], [f"b={name}", f"b={name}"])):
        with pytest.raises(UsageError, match="class (host|a|b) has an earlier run with all that this run has; leave one of them out"):
            measured_classes(given, texts, root)
    assert [one.name for one in measured_classes([], [name, f"b={name}"], root)] == ["host", "b"]


def test_runs_that_measure_no_host_are_refused(run_on_disk):
    root = run_on_disk.parent
    network = restore("network", root)
    with pytest.raises(
        UsageError, match=f"--host-run {network}: run {network} is of the study network; give a run of one of .*density.*disk"
    ):
        measured_classes([], [network], root)
    with pytest.raises(UsageError, match="--slo: no run of --host-run has the latency of databases by their CPU; add a density run"):
        measured_classes([], [restore("disk", root)], root, LatencyObjective(percentile=95, limit_ms=5))


def test_classes_of_runs_are_named(run_on_disk, tmp_path):
    root, name = run_on_disk.parent, run_on_disk.name
    classes = classes_of(tmp_path, "- {name: a, capacity: {cpu_cores: 4}}\n- {name: b, capacity: {cpu_cores: 5}}\n")
    first, second = measured_classes(classes, [f"b={name}"], root)
    assert first.capacity["cpu_cores"].value == 4 and second.capacity["cpu_cores"].source == f"run {name}"
    for text, message in ((name, "write it as CLASS=RUN"), (f"c={name}", "there is no class c")):
        with pytest.raises(UsageError, match=message):
            measured_classes(classes, [text], root)
    with pytest.raises(UsageError, match="--host-run a b=.*: 'name': "):
        measured_classes([], [f"a b={name}"], root)


@pytest.fixture
def overcommitted(run_on_disk):
    """The name of a consolidation run in which working sets of 1,600 MB kept 95 % of the throughput in 1,280 MB with the balloon."""
    root = run_on_disk.parent
    name = restore("consolidation", root)
    record = RunDirectory(root / name).record()
    share = record.options["share"]
    rows = [
        {
            "layout": layout,
            "overcommit": 0.2,
            "shared_buffers_percent": 25,
            "relative_to_undercommitted": Finding(value=kept, low=kept, high=1.0, unit="ratio", n=3),
        }
        for layout, kept in (("dedicated", 0.8), ("dedicated-balloon", 0.95))
    ]
    analysis = record.analysis.model_copy(update={"tables": {"consolidation": rows}})
    changed = record.model_copy(
        update={"schema_": SCHEMA, "options": {**record.options, "working_set_size": [share]}, "analysis": analysis}
    )
    (root / name / "run.json").write_text(changed.model_dump_json(by_alias=True))
    return name


def test_memory_is_overcommitted_as_measured_with_the_balloon(run_on_disk, overcommitted, tmp_path):
    text = "- {name: a, capacity: {cpu_cores: 4, memory_mb: 1000}, balloon: true}\n- {name: b, capacity: {cpu_cores: 4}}\n"
    classes = classes_of(tmp_path, text)
    found, other = measured_classes(classes, [f"a={overcommitted}"], run_on_disk.parent)
    memory = found.capacity["memory_mb"]
    assert memory.value == pytest.approx(1250) and (memory.n, memory.source) == (3, f"run {overcommitted}") and other == classes[1]
    assert found.capacity["memory_min_mb"].value == 1000
    assert "is multiplied by 1.25" in found.notes[0]
    for name, message in (("b", "run .* the layout dedicated certainly keeps"), ("a", "has an earlier run with all that this run has")):
        with pytest.raises(UsageError, match=message):
            measured_classes(classes, [f"a={overcommitted}", f"{name}={overcommitted}"], run_on_disk.parent)
    without = classes_of(tmp_path, "- {name: a, capacity: {cpu_cores: 4}, balloon: true}\n")
    with pytest.raises(UsageError, match="class a has no memory_mb, which the overcommitment of run .* multiplies; add it"):
        measured_classes(without, [overcommitted], run_on_disk.parent)
