"""Costs by runs: recorded ones, with numbers computed from their files by jq, and made-up ones."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from pgherd.model.errors import UsageError
from pgherd.prepare.fleet_files import read_demand
from pgherd.prepare.run_costs import read_costs
from pgherd.study.guests import EMULATED_METRIC

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
DENSITY, WORKING_SET = "20261126-033744-density-6eef", "20261126-040509-working-set-7853"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with recorded runs."""
    for name in ("compression", "density"):
        document = json.loads(lzma.decompress((RUNS / f"{name}.json.xz").read_bytes()))
        path = tmp_path / "runs" / document["run"]["run"]
        for trial in document["trials"]:
            (path / "trials" / trial["id"]).mkdir(parents=True)
            (path / "trials" / trial["id"] / "trial.json").write_text(json.dumps(trial))
        (path / "run.json").write_text(json.dumps(document["run"]))
    return tmp_path / "runs"


def with_working_set(root: Path, run_on_disk: Path, *found: tuple[float | None, float | None, float | None], last: str = "knee") -> None:
    """Write a working-set run with these findings (value, low, high), one for each number of clients. ``last`` is the last one's shape."""
    record = json.loads((run_on_disk / "run.json").read_text())
    record["study"], record["run"] = "working-set", WORKING_SET
    record["analysis"]["findings"] = {
        f"working_set.{clients}": {"value": value, "low": low, "high": high, "unit": "MB", "note": "no knee"}
        for clients, (value, low, high) in enumerate(found)
    }
    shapes = ["knee"] * (len(found) - 1) + [last]
    rows = [{"varied": "container memory", "clients": clients, "shape": shape} for clients, shape in enumerate(shapes)]
    record["analysis"]["tables"] = {"working-set": rows}
    (root / WORKING_SET).mkdir(exist_ok=True)
    (root / WORKING_SET / "run.json").write_text(json.dumps(record))


def test_cost_of_a_recorded_density_run(root):
    (cost,) = read_costs([DENSITY], root)
    assert cost.databases == "*" and cost.source == f"--demand-run {DENSITY}"
    assert cost.resources["cpu_cores"] == pytest.approx((1.1122624e-05, 1.8993823e-05)), "21 clean trials, without clients and samplers"
    assert cost.resources["wal_mb_s"] == pytest.approx((0, 5.898445e-06 * 2**20 / 1e6))
    assert cost.resources["memory_mb"] == pytest.approx((181.84094, 185.71146))
    assert cost.resources["read_iops"] == pytest.approx((0, 3.1685342e-05))
    assert cost.resources["write_iops"] == pytest.approx((0, 5.1956534e-04))
    assert "IOPS are those with its memory" in cost.note
    assert "a working-set run measures what they need" in cost.note and "tainted" not in cost.note


def test_a_working_set_is_the_memory_that_is_needed(root, run_on_disk):
    with_working_set(root, run_on_disk, (None, None, None))
    with pytest.raises(UsageError, match=f"--demand-run {WORKING_SET}: run {WORKING_SET} has no working set of a load: no knee; repeat"):
        read_costs([WORKING_SET], root)
    with_working_set(root, run_on_disk, (150.0, 140.0, 160.0), (250.0, None, None), (None, None, None), last="rising")
    with pytest.raises(UsageError, match="has no working set of a load: no knee; repeat it"):
        read_costs([WORKING_SET], root)
    with_working_set(root, run_on_disk, (150.0, 140.0, 160.0), (250.0, None, None), (None, None, None), last="flat")
    (cost,) = read_costs([f"orders*={WORKING_SET}"], root)
    assert cost.databases == "orders*" and cost.resources == {"memory_mb": (250.0, 250.0)}
    with_working_set(root, run_on_disk, (250.0, 200.0, 300.0))
    assert read_costs([WORKING_SET], root)[0].resources == {"memory_mb": (200.0, 300.0)}
    with_working_set(root, run_on_disk, (150.0, 140.0, 400.0), (250.0, 200.0, 260.0))
    assert read_costs([WORKING_SET], root)[0].resources == {"memory_mb": (200.0, 400.0)}, "the first one may be the larger"


def test_a_run_without_databases_has_no_cost(root):
    with pytest.raises(UsageError, match="--demand-run x=compression: run .*compression.* has no CPU of its databases"):
        read_costs(["x=compression"], root)


def test_tainted_trials_and_a_single_one_are_noted(root):
    trials = sorted((root / DENSITY / "trials").iterdir())
    for trial in trials[1:]:
        (trial / "trial.json").unlink()
        trial.rmdir()
    file = trials[0] / "trial.json"
    document = json.loads(file.read_text())
    document["verdicts"][0]["result"] = "fail"
    file.write_text(json.dumps(document))
    (cost,) = read_costs([DENSITY], root)
    assert cost.resources["cpu_cores"] == pytest.approx((1.8211412e-05,) * 2)
    assert "all trials are tainted" in cost.note and "one trial, so the cost has no interval" in cost.note


@pytest.fixture
def alone(root):
    """A function that keeps one trial of the density run, and changes it. Its database is in the container db03."""

    def change(function) -> None:
        first, *others = sorted((root / DENSITY / "trials").iterdir())
        for trial in others:
            (trial / "trial.json").unlink()
            trial.rmdir()
        document = json.loads((first / "trial.json").read_text())
        function(document)
        (first / "trial.json").write_text(json.dumps(document))

    return change


def test_without_the_cpu_of_its_client_a_database_has_no_cost(root, alone):
    def change(trial):
        del trial["phases"][0]["metrics"]["driver:local/db03/pg/bench"]
        trial["phases"][0]["targets"][0]["client_cpu"] = None

    alone(change)
    with pytest.raises(UsageError, match="has no CPU of its databases"):
        read_costs([DENSITY], root)


def test_the_memory_of_a_container_with_two_databases_is_of_none(root, alone):
    def change(trial):
        container = next(one for one in trial["trial"]["deployment"]["hosts"][0]["containers"] if one["name"] == "db03")
        databases = container["servers"][0]["databases"]
        databases.append({**databases[0], "name": "other"})

    alone(change)
    assert sorted(read_costs([DENSITY], root)[0].resources) == ["cpu_cores", "read_iops", "wal_mb_s", "write_iops"]


@pytest.mark.parametrize(
    ("pages", "reserved", "known"),
    [(None, 0, True), (None, 8, False), ("try", 8, False), ("off", 8, True), ("false", 8, True), ("on", 0, False)],
)
def test_memory_of_servers_that_may_have_huge_pages_is_unknown(root, alone, pages, reserved, known):
    """Settings have the default (try) in former runs and of external servers."""

    def change(trial):
        for container in trial["trial"]["deployment"]["hosts"][0]["containers"]:
            container["servers"][0]["settings"] |= {} if pages is None else {"huge_pages": pages}

    alone(change)
    record = json.loads((root / DENSITY / "run.json").read_text())
    record["hosts"]["local"]["huge_pages"] = {"2 MB": reserved}
    (root / DENSITY / "run.json").write_text(json.dumps(record))
    (cost,) = read_costs([DENSITY], root)
    assert ("memory_mb" in cost.resources) is known
    assert ("no memory of trials whose servers may have huge pages" in cost.note) is not known


def test_memory_with_all_of_the_page_cache_is_unknown(root, alone):
    def change(trial):
        del trial["phases"][0]["metrics"]["container:db03"]["memory.inactive_file"]
        view = {"container": "db03", "url": "http://h:9090", "match": "", "step": 5, "gaps": 0, "longest_gap": None, "series": []}
        trial["phases"][0]["prometheus"] = [{**view, "sparse": [], "missing": [], "clock_ahead": 0, "seconds": 1}]

    alone(change)
    (cost,) = read_costs([DENSITY], root)
    assert "memory_mb" not in cost.resources
    assert "there is no memory, because Prometheus has no container_memory_working_set_bytes" in cost.note


def io_of(trial, number="254:0", **changes):
    """Change the recorded I/O of a device in the first phase."""
    (view,) = [view for view in trial["phases"][0]["io"]["devices"] if view["number"] == number]
    view.update(changes)


def test_requests_are_the_mean_of_the_devices_with_files_of_the_server(root, alone):
    rates = []

    def change(trial):
        rates.append(trial["phases"][0]["targets"][0]["throughput"])
        series = {"at": [1, 4], "seconds": [1, 3], "reads": [80.0, 0.0], "writes": [4.0, 8.0]}
        io_of(trial, roles={"data": ["db03/pg"]}, series=series, below=["8:0"])
        devices = trial["phases"][0]["io"]["devices"]
        devices.append({**devices[0], "number": "8:0", "roles": {}, "below": []})
        devices.append({**devices[0], "number": "8:16", "roles": {"wal": ["db03/pg"]}, "series": {**series, "writes": [100.0, 100.0]}})
        devices.append({**devices[0], "number": "8:32", "roles": {"data": ["db01/pg"], "wal": ["db01/pg"]}})

    alone(change)
    resources = read_costs([DENSITY], root)[0].resources
    assert resources["read_iops"] == pytest.approx((40 / rates[0],) * 2)
    assert resources["write_iops"] == pytest.approx((107 / rates[0],) * 2)


def test_requests_of_a_server_on_no_device_are_those_of_its_container(root, alone):
    rates = []

    def change(trial):
        rates.append(trial["phases"][0]["targets"][0]["throughput"])
        io_of(trial, roles={"data": ["db03/pg"]})
        trial["phases"][0]["metrics"]["container:db03"]["reads"] = 30.0

    alone(change)
    resources = read_costs([DENSITY], root)[0].resources
    assert resources["read_iops"] == pytest.approx((30 / rates[0],) * 2) and "write_iops" not in resources, "no writes were observed"


def test_resources_without_a_capacity_are_left_out(root):
    (cost,) = read_costs([DENSITY], root, {"memory_mb", "read_iops"})
    assert sorted(cost.resources) == ["cpu_cores", "memory_mb", "read_iops"]
    assert "no class of hosts has a capacity of write_iops, wal_mb_s, so none is planned" in cost.note


def test_the_cpu_of_a_hypervisor_is_not_of_the_database(root, alone):
    rates = []

    def change(trial):
        rates.append(trial["phases"][0]["targets"][0]["throughput"])
        trial["phases"][0]["metrics"]["guest:db03"] = {"qemu.cpu": 0.3, "qemu.cpu_guest": 0.2, EMULATED_METRIC: 0.0}

    alone(lambda _: None)
    whole = read_costs([DENSITY], root)[0].resources["cpu_cores"][0]
    alone(change)
    assert read_costs([DENSITY], root)[0].resources["cpu_cores"][0] == pytest.approx(whole - 0.1 / rates[0])


def test_a_run_that_supports_less_says_so_or_is_refused(root, alone):
    alone(lambda trial: trial["phases"][0]["metrics"].__setitem__("guest:db03", {EMULATED_METRIC: 1.0}))
    with pytest.raises(UsageError, match="has no usable CPU: the guests' processors were emulated"):
        read_costs([DENSITY], root)
    alone(lambda trial: trial["phases"][0]["metrics"].pop("guest:db03"))
    record = json.loads((root / DENSITY / "run.json").read_text())
    for change, said in (
        ({"state": "interrupted"}, "is not finished"),
        ({"grade": "C", "grade_reason": "noise"}, "an indication only"),
    ):
        changed = record | {key: value for key, value in change.items() if key in record}
        changed["analysis"] = record["analysis"] | {key: value for key, value in change.items() if key not in record}
        (root / DENSITY / "run.json").write_text(json.dumps(changed))
        assert said in read_costs([DENSITY], root)[0].note


@pytest.mark.parametrize("name", ["seconds", "reads", "writes"])
def test_series_that_cannot_be_are_refused(root, alone, name):
    alone(lambda trial: io_of(trial, series={"at": [1], "seconds": [1], "reads": [1], "writes": [1], name: [-1.0]}))
    with pytest.raises(UsageError, match=f"run {DENSITY} has metrics that are negative"):
        read_costs([DENSITY], root)


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf"), 1e300])
@pytest.mark.parametrize("name", ["cpu.usage", "memory.usage"])
def test_metrics_that_cannot_be_are_refused(root, alone, name, value):
    alone(lambda trial: trial["phases"][0]["metrics"]["container:db03"].update({name: value}))
    refused = f"run {DENSITY} has metrics that are negative, infinite or no number; give another run|trial.json cannot be read"
    with pytest.raises(UsageError, match=refused):
        read_costs([DENSITY], root)


def test_a_trial_at_a_low_rate_is_left_out(root):
    file = root / DENSITY / "trials" / "0001" / "trial.json"
    document = json.loads(file.read_text())
    document["phases"][0]["targets"][0]["throughput"] = 20.0
    file.write_text(json.dumps(document))
    (cost,) = read_costs([DENSITY], root)
    assert cost.resources["cpu_cores"] == pytest.approx((1.1122624e-05, 1.8993823e-05)), "its CPU is that of an idle server, mostly"


def test_rates_become_resources(root, run_on_disk, tmp_path):
    with_working_set(root, run_on_disk, (150.0, 140.0, 160.0))
    file = tmp_path / "rates.csv"
    file.write_text("database,time,tps\norders-1,0,1000\norders-1,1,20000\nother,0,10000\nother,1,\n")
    costs = read_costs([DENSITY, f"orders*={WORKING_SET}"], root)
    found = read_demand(file, 95, costs)
    assert found.names == ("orders-1", "other")
    assert found.resources == ("cpu_cores", "memory_mb", "read_iops", "write_iops", "wal_mb_s")
    assert found.high[:, 0].ravel().tolist() == pytest.approx([0.018993823, 0.37987646, 0.18993823, 0.18993823])
    assert found.low[0, 0].tolist() == pytest.approx([0.011122624, 0.22245248])
    assert found.high[:, 1].tolist() == [[160, 160], pytest.approx([185.71146] * 2)], "memory does not depend on the rate"
    unknown = [("other", name, 1) for name in ("cpu_cores", "read_iops", "write_iops", "wal_mb_s")]
    assert [(one.database, one.resource, one.values) for one in found.unknown] == unknown
    assert any(f"Run {DENSITY}: memory is what the servers used there" in note for note in found.notes)


def test_a_database_without_a_run_is_bounded_by_the_others(root, tmp_path):
    file = tmp_path / "rates.csv"
    file.write_text("database,tps,memory_mb\na,1000,7\nb,500,8\n")
    found = read_demand(file, 95, read_costs([f"a={DENSITY}"], root))
    assert found.high[:, 1, 0].tolist() == [7, 8], "a column of the file counts before the run"
    assert found.high[1, 0] == found.high[0, 0] > 0 == found.low[1, 0]
    assert ("b", "cpu_cores", "largest known value of any database") in [(one.database, one.resource, one.source) for one in found.unknown]


@pytest.mark.parametrize(
    "text, runs, message",
    [
        ("database,tps\na,1\n", [], "rates.csv has tps, the rate of transactions; give the run .* with --demand-run"),
        ("database,cpu_cores\na,1\n", [DENSITY], f"--demand-run {DENSITY} needs the rate of each database, and .* has no column tps"),
        ("database,tps\na,1\n", [f"b={DENSITY}"], f"--demand-run b={DENSITY}: no database is called b"),
        ("database,tps\na,1\n", [WORKING_SET], "has no CPU of a transaction"),
        ("database,tps\na,-1\n", [DENSITY], "row 2: '-1' under tps of database a is not a number"),
        ("database,tps\na,1\n", ["none"], "none"),
    ],
)
def test_rates_and_runs_that_do_not_fit_are_one_sentence(root, run_on_disk, tmp_path, text, runs, message):
    with_working_set(root, run_on_disk, (150.0, None, None))
    file = tmp_path / "rates.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_demand(file, 95, read_costs(runs, root))
