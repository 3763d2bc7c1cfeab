from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyObjective
from pgherd.prepare.fleet_files import read_classes
from pgherd.prepare.host_runs import measured_classes


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "h.yaml"
        path.write_text(text)
        return path

    return write


def test_capacity_of_a_density_run(run_on_disk):
    changed(run_on_disk, lambda record: record.update(environment={"runtime": "cgroup", "cores": 4, "memory": 2**31}))
    (found,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    cpu, memory = found.capacity["cpu_cores"], found.capacity["memory_mb"]
    assert found.name == "host" and cpu.source == f"run {run_on_disk.name}" and cpu.value > 0
    assert memory.value == 2048 and memory.source == f"memory of run {run_on_disk.name}" and not found.notes


def test_vcpus_that_are_no_limit_are_no_measure_of_the_capacity(run_on_disk):
    (limited,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    changed(run_on_disk, lambda record: record["options"].update(cpu_mode="none", runtime="process"))
    (found,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    assert found.capacity["cpu_cores"].value != pytest.approx(limited.capacity["cpu_cores"].value, rel=1e-3)
    changed(run_on_disk, lambda record: record["options"].update(runtime="vm"))
    (guests,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    assert guests.capacity["cpu_cores"].value == limited.capacity["cpu_cores"].value, "a guest has no more than its vCPUs"


def test_the_platform_overhead_is_no_part_of_the_capacity(run_on_disk):
    changed(
        run_on_disk,
        lambda record: record["analysis"]["findings"].update(platform_overhead_measured={"value": 0.125, "unit": "cores"}),
    )
    (found,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    assert found.notes == (
        f"The CPU capacity by run {run_on_disk.name} is without the platform overhead: the databases were measured while the rest of the "
        "host, without pgherd and clients, used 0.12 cores",
    )


def changed(run: Path, change) -> None:
    """Change the record of a run."""
    record = json.loads((run / "run.json").read_text())
    change(record)
    (run / "run.json").write_text(json.dumps(record))


def with_latencies(record) -> None:
    """Give the run a table of three numbers of databases of 4 vCPUs: 10, 10 and 40 ms."""

    def finding(value, spread, unit):
        return {"value": value, "unit": unit, "low": value - spread, "high": value + spread}

    record["analysis"]["tables"]["density"] = [
        {"databases": n, "p95": finding(latency, latency / 10, "ms"), "cpu_share": finding(share, 0.01, "ratio")}
        for n, latency, share in ((1, 10.0, 1.0), (3, 10.0, 1.0), (4, 40.0, 0.9))
    ]


def test_latency_limit_of_a_closed_loop_run(run_on_disk):
    changed(run_on_disk, with_latencies)
    objective = LatencyObjective(percentile=95, limit_ms=22.0)
    (found,) = measured_classes([], [run_on_disk.name], run_on_disk.parent, objective)
    limit = found.latency
    assert limit is not None and limit.objective == "p95 ≤ 22 ms" and limit.source == f"run {run_on_disk.name}"
    # From 12 cores (3 × 4) at 10 ms to 14.4 (4 × 4 × 0.9) at 40 ms; bounds are 10 % apart.
    assert limit.value == pytest.approx(12 + 2.4 * 12 / 30)
    assert limit.low == pytest.approx(12 + 2.4 * 11 / 33) and limit.high == pytest.approx(12 + 2.4 * 13 / 27)
    assert measured_classes([], [run_on_disk.name], run_on_disk.parent)[0].latency is None, "there is no objective"
    with pytest.raises(UsageError, match="--slo: run .* has no p90 of its databases; use p50, p95 or p99"):
        measured_classes([], [run_on_disk.name], run_on_disk.parent, LatencyObjective(percentile=90, limit_ms=1))


def test_an_objective_of_the_run_is_its_capacity(run_on_disk):
    def change(record):
        record["options"]["objectives"] = [{"percentile": 99, "limit_ms": 10}]
        record["analysis"]["findings"]["capacity"].update(value=4.0, low=3.0, high=5.0)

    changed(run_on_disk, change)
    (found,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    each = cores_of(run_on_disk, 4)
    assert found.latency is not None and found.latency.objective == "p99 ≤ 10 ms"
    assert (found.latency.low, found.latency.value, found.latency.high) == pytest.approx((3 * each, 4 * each, 5 * each))
    assert found.capacity["cpu_cores"].value == pytest.approx(4 * each), "the CPU at the objective, and not that of its vCPUs"
    with pytest.raises(UsageError, match="was measured for p99 ≤ 10 ms; leave out --slo"):
        measured_classes([], [run_on_disk.name], run_on_disk.parent, LatencyObjective(percentile=95, limit_ms=1))
    changed(run_on_disk, lambda record: record["analysis"]["findings"]["capacity"].update(low=None, high=None))
    limit = measured_classes([], [run_on_disk.name], run_on_disk.parent)[0].latency
    assert limit is not None and limit.classify(each) == "near" and limit.high is None, "no bound is known"
    changed(run_on_disk, lambda record: record["analysis"]["findings"]["capacity"].update(value=77.0))
    with pytest.raises(UsageError, match="has no CPU of its containers at 77 databases"):
        measured_classes([], [run_on_disk.name], run_on_disk.parent)


@pytest.fixture
def never_missed(run_on_disk):
    """A function that makes the run one in which these shares of 10 blocks kept the objective, by number of databases."""

    def change(shares):
        def changes(record):
            record["options"]["objectives"] = [{"percentile": 99, "limit_ms": 10}]
            record["analysis"]["findings"]["capacity"].update(value=None, low=None, high=None, note="4 databases keep it")
            record["analysis"]["tables"]["objective"] = [
                {"databases": n, "blocks_kept": {"value": share, "unit": "ratio", "n": 10}} for n, share in shares.items()
            ]

        changed(run_on_disk, changes)
        return run_on_disk

    return change


def test_an_objective_that_was_never_missed_is_a_bound(never_missed, write):
    run = never_missed({1: 1.0, 3: 1.0, 4: 0.6})
    (found,) = measured_classes([], [run.name], run.parent)
    certain, largest = 3 * cores_of(run, 3), 4 * cores_of(run, 4)
    limit = found.latency
    assert limit is not None and (limit.low, limit.value, limit.high) == (pytest.approx(certain), None, None)
    assert [limit.classify(cores) for cores in (certain, 1.01 * certain, 100 * certain)] == ["within", "near", "near"]
    cpu = found.capacity["cpu_cores"]
    assert (cpu.value, cpu.low, cpu.high) == (pytest.approx(largest), pytest.approx(certain), None), "hosts get no more than was measured"
    (stated,) = measured_classes(read_classes(write("classes:\n- {name: a, capacity: {cpu_cores: 900}}\n")), [run.name], run.parent)
    assert stated.capacity["cpu_cores"].value == 900 and stated.latency == found.latency, "a bound is no capacity"
    (other,) = measured_classes(read_classes(write("classes:\n- {name: a, capacity: {memory_mb: 9}}\n")), [run.name], run.parent)
    assert other.capacity["cpu_cores"] == cpu


@pytest.mark.parametrize("shares", [{1: 0.1}, {1: 1.0, 3: 0.2}, {}])
def test_without_a_bound_such_a_run_has_no_capacity(never_missed, shares):
    run = never_missed(shares)
    with pytest.raises(UsageError, match="has no capacity: 4 databases keep it; give a density run"):
        measured_classes([], [run.name], run.parent)


def cores_of(run: Path, databases: int) -> float:
    """Return the mean CPU of a container at this number of databases."""
    cores = [
        metrics["cpu.usage"]
        for file in sorted(run.glob("trials/*/trial.json"))
        if (trial := json.loads(file.read_text()))["trial"]["point"] == {"databases": databases} and trial["error"] is None
        for name, metrics in trial["phases"][0]["metrics"].items()
        if name.startswith("container:")
    ]
    return sum(cores) / len(cores)


@pytest.mark.parametrize("options", [{"rate": 5.0}, {"bound_by": "io"}, {"cpu_mode": "none", "runtime": "process"}])
def test_databases_that_do_not_use_their_vcpus_have_the_cpu_of_their_containers(run_on_disk, options):
    def change(record):
        record["options"].update(options)
        record["analysis"]["findings"]["capacity"].update(value=2.5)

    changed(run_on_disk, change)
    (found,) = measured_classes([], [run_on_disk.name], run_on_disk.parent)
    between = (cores_of(run_on_disk, 2) + cores_of(run_on_disk, 3)) / 2
    assert found.capacity["cpu_cores"].value == pytest.approx(2.5 * between)


@pytest.mark.parametrize("options", [{"tenants": [{"name": "a"}]}, {"fleet": [{"name": "a"}]}])
def test_a_run_of_different_databases_is_refused(run_on_disk, options):
    changed(run_on_disk, lambda record: record["options"].update(options))
    with pytest.raises(UsageError, match="the databases of run .* differ; give a density run of equal databases"):
        measured_classes([], [run_on_disk.name], run_on_disk.parent)


def test_a_curve_without_the_cpu_received_has_no_limit(run_on_disk):
    def change(record):
        with_latencies(record)
        for row in record["analysis"]["tables"]["density"]:
            row["efficiency"] = row.pop("cpu_share")

    changed(run_on_disk, change)
    with pytest.raises(UsageError, match="--slo: run .* has no CPU received by its databases; give a run with CPU limits"):
        measured_classes([], [run_on_disk.name], run_on_disk.parent, LatencyObjective(percentile=95, limit_ms=22.0))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda record: record["options"].pop("efficiency"), "has another form than a density run: KeyError"),
        (lambda record: record["options"].update(objectives=[{"x": 1}]), "'.*' is "),
        (lambda record: record["options"].update(objectives=3), "has another form than a density run: TypeError"),
        (lambda record: record["analysis"]["findings"]["capacity"].update(value=-3.0), "'value': .* greater than 0"),
    ],
)
def test_a_foreign_run_is_one_sentence(run_on_disk, change, message):
    changed(run_on_disk, change)
    with pytest.raises(UsageError, match=f"--host-run {run_on_disk.name}: .*{message}"):
        measured_classes([], [run_on_disk.name], run_on_disk.parent)
