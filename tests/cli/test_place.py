"""``pgherd place`` on the generated fleet of the scenarios and on small ones."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pgherd.cli.place import command
from pgherd.model.errors import UsageError

FLEET = Path(__file__).parents[2] / "scenarios" / "fleet-200"
INPUTS = (str(FLEET / "demand.csv"), "--hosts", str(FLEET / "hosts.yaml"), "--constraints", str(FLEET / "constraints.csv"))


def run(*arguments):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def document(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The document of a plan of the scenario, and the directory of its files."""
    directory = tmp_path_factory.mktemp("plan")
    return document(*INPUTS, "--lost-hosts", 1, "--growth-percent", 3, "--output", directory), directory


def test_every_database_is_placed_below_capacity(planned):
    found, _ = planned
    assert found["schema"] == "pgherd/place/2" and found["complete"] and not found["refusals"]
    assert len(found["placement"]) == 200 and max(max(use) for use in found["use"].values()) <= 1
    orders = [found["placement"][f"db000{n}"] for n in (1, 2, 3)]
    assert len(set(orders)) == 3 and found["placement"]["db0004"].startswith("small-") and found["placement"]["db0005"] == "large-1"


def test_sums_of_the_input_agree_with_the_plan(planned):
    """The use of each host is the sum of its databases in the file, computed without the planner."""
    found, _ = planned
    capacity = {one["name"]: one["capacity"] for one in yaml.safe_load((FLEET / "hosts.yaml").read_text())["classes"]}
    used: dict[tuple[str, str], dict[str, float]] = {}
    with (FLEET / "demand.csv").open() as file:
        for row in csv.DictReader(file):
            host = found["placement"][row["database"]]
            sums = used.setdefault((host, row["time"]), {})
            for name, whole in capacity[host.rpartition("-")[0]].items():
                sums[name] = sums.get(name, 0) + float(row[name]) / whole
    for host, use in found["use"].items():
        for slot, value in zip(found["slots"], use, strict=True):
            assert value == pytest.approx(max(used.get((host, slot), {"": 0}).values()), abs=1e-3)


def test_a_third_fewer_hosts_than_by_peaks():
    found = document(*INPUTS[:3])["findings"]
    assert found["hosts"]["value"] <= 2 / 3 * found["hosts_by_peaks"]["value"]
    assert found["overloaded_by_means"]["value"] > 0


def test_files_agree(planned):
    found, directory = planned
    names = ["demand.npy", "hosts.csv", "hosts.yaml", "input.json", "placement.csv", "plan.html", "plan.json"]
    assert sorted(path.name for path in directory.iterdir()) == names
    assert {**json.loads((directory / "plan.json").read_text()), "files": found["files"]} == found
    with (directory / "placement.csv").open() as file:
        assert {row["database"]: row["host"] for row in csv.DictReader(file)} == found["placement"]
    hosts = list(yaml.safe_load_all((directory / "hosts.yaml").read_text()))
    assert {database: one["host"] for one in hosts for database in one["databases"]} == found["placement"]
    assert hosts[0]["labels"] == {"zone": "a"}
    page = (directory / "plan.html").read_text()
    assert found["answer"] in page and "as planned" in page and "packed by peaks" in page and "<script" not in page


def test_terminal(planned):
    text = " ".join(run(*INPUTS, "--lost-hosts", 1, "--growth-percent", 3).stdout.split())
    assert planned[0]["answer"] in text
    assert "Packing by means needs" in text and "The first host is full in" in text and "stated without an interval" in text


def test_refused_databases_give_exit_code_1(tmp_path):
    (tmp_path / "demand.csv").write_text("database,cpu_cores\na,6\nb,6\n")
    (tmp_path / "hosts.yaml").write_text("classes:\n- {name: h, capacity: {cpu_cores: 10}, count: 1}\n")
    result = run(tmp_path / "demand.csv", "--hosts", tmp_path / "hosts.yaml")
    assert result.return_value == 1 and "needs 2 cores more cpu_cores at 00:00 on h-1, or one more host" in " ".join(result.stdout.split())


def test_moves_from_the_present_placement(tmp_path):
    (tmp_path / "demand.csv").write_text("database,cpu_cores\na,6\nb,6\nc,1\n")
    (tmp_path / "hosts.yaml").write_text("classes:\n- {name: h, capacity: {cpu_cores: 10}}\n")
    (tmp_path / "now.csv").write_text("database,host\na,h-1\nb,h-1\nc,h-2\n")
    found = document(tmp_path / "demand.csv", "--hosts", tmp_path / "hosts.yaml", "--constraints", tmp_path / "now.csv", "--max-moves", 1)
    assert found["complete"] and len(found["moves"]) == 1 and found["moves"][0]["gain"].startswith("h-1: highest use 120%")


def test_rates_and_a_run_make_a_plan(run_on_disk, tmp_path):
    (tmp_path / "rates.csv").write_text("database,time,tps\na,0,1000\na,1,2000\nb,0,3000\nb,1,\n")
    (tmp_path / "hosts.yaml").write_text("classes:\n- {name: h, capacity: {cpu_cores: 0.5}}\n")
    words = ("--hosts", tmp_path / "hosts.yaml", "--demand-run", run_on_disk.name, "--runs-dir", run_on_disk.parent)
    found = document(tmp_path / "rates.csv", *words)
    early, late = found["use"]["h-1"]
    assert late / early == pytest.approx(5 / 4, rel=1e-3) and 0 < early < 1, "an unknown rate counts as the largest of its database"
    assert [(one["database"], one["resource"], one["values"]) for one in found["unknown"]] == [("b", "cpu_cores", 1)]
    (row,) = found["hosts"]
    assert row["use"]["low"] < row["use"]["value"], "the trials differ in their CPU for each transaction"


def test_latency_class_of_each_host(run_on_disk, tmp_path):
    record = json.loads((run_on_disk / "run.json").read_text())
    cells = {"p95": {"unit": "ms"}, "cpu_share": {"unit": "ratio", "value": 1.0}}
    record["analysis"]["tables"]["density"] = [
        {"databases": n, **cells, "p95": {"unit": "ms", "value": latency, "low": latency - 1, "high": latency + 1}}
        for n, latency in ((1, 2.0), (2, 4.0), (3, 20.0))
    ]
    (run_on_disk / "run.json").write_text(json.dumps(record))
    (tmp_path / "demand.csv").write_text("database,time,cpu_cores\na,0,1\na,1,8.2\n")
    words = (tmp_path / "demand.csv", "--host-run", run_on_disk.name, "--slo", "p95=5ms", "--runs-dir", run_on_disk.parent)
    assert document(*words)["latency"] == {"host-1": ["within", "near"]}
    text = " ".join(run(*words, "--output", tmp_path / "out").stdout.split())
    assert "The latency objective is missed in 0.0 % of the host slots, and the curve leaves 50.0 % open." in text
    assert "latency" in text and "cpu_cores 12:00" in text, "no cell is broken at 80 columns"
    assert "near" in (tmp_path / "out" / "hosts.csv").read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "no host is given"),
        (("--hosts", "h.yaml", "--max-moves", 1, "--lost-hosts", 1), "give one of them"),
        (("--hosts", "h.yaml", "--max-moves", 1), "in the column 'host' of --constraints"),
        (("--hosts", "none.yaml"), "none.yaml: No such file"),
        (("--hosts", FLEET / "hosts.yaml", "--days", 3), "--days and --slots apply to an address of Prometheus"),
        (("--hosts", FLEET / "hosts.yaml", "--slo", "p95=5ms"), "--slo p95=5ms: add --host-run with a density run, .* or --verify"),
        (("--hosts", FLEET / "hosts.yaml", "--slo", "p95=5ms,p99=9ms"), "--slo p95=5ms,p99=9ms: give one objective, such as p95=5ms"),
        (("--hosts", FLEET / "hosts.yaml", "--slo", "5ms"), "--slo 5ms: write a percentile and a limit"),
        (("other.csv", "--hosts", FLEET / "hosts.yaml"), "demand.csv is no directory of a capture, and only captures may be several"),
    ],
)
def test_bad_options(arguments, message):
    with pytest.raises(UsageError, match=message):
        run("demand.csv", *arguments)


def test_a_run_of_rates_does_not_go_with_prometheus():
    words = ("http://127.0.0.1:9", "--hosts", FLEET / "hosts.yaml", "--demand-run", "last")
    with pytest.raises(UsageError, match="--demand-run last turns rates into CPU, and Prometheus has the CPU itself; leave it out"):
        run(*words)


def test_the_fullest_hosts_are_verified_as_planned(monkeypatch):
    asked = {}
    monkeypatch.setattr("pgherd.cli.run_study.run_study", lambda study, options, **_: asked.update(options, study=study) or 0)
    run(*INPUTS, "--verify", 2, "--verify-duration", "2s", "--verify-cores", 1.5)
    found = document(*INPUTS)
    assert asked["study"] == "place-verify" and (asked["duration"], asked["host_cores"]) == ("2s", 1.5)
    assert tuple(asked["slots"]) == tuple(found["slots"]) and len(asked["planned"]) == 2
    peaks = [max(map(host.demand, range(24))) / host.cores for host in asked["planned"]]
    assert peaks == sorted(peaks, reverse=True)
    for host in asked["planned"]:
        assert set(host.databases) == {name for name, where in found["placement"].items() if where == host.name}
        assert all(host.demand(slot) / host.cores <= use + 1e-3 for slot, use in enumerate(found["use"][host.name]))
        assert len(host.memory) == len(host.databases) and host.latency == () and asked["objective"] is None


def test_latency_classes_and_memory_of_the_plan_are_verified(monkeypatch, run_on_disk, tmp_path):
    asked = {}
    monkeypatch.setattr("pgherd.cli.run_study.run_study", lambda study, options, **_: asked.update(options) or 0)
    (tmp_path / "demand.csv").write_text("database,time,cpu_cores,memory_mb\na,0,0.1,200\na,1,0.2,300\n")
    words = (tmp_path / "demand.csv", "--slo", "p95=5ms", "--runs-dir", run_on_disk.parent, "--verify", 1)
    (tmp_path / "hosts.yaml").write_text("classes:\n  - name: host\n    capacity: {memory_mb: 1000}\n")
    hosts = ("--hosts", tmp_path / "hosts.yaml")
    run(*words, *hosts, "--host-run", f"host={run_on_disk.name}")
    (host,) = asked["planned"]
    assert host.memory == (300,) and len(host.latency) == 2 and str(asked["objective"]) == "p95 ≤ 5 ms"
    (tmp_path / "hosts.yaml").write_text("classes:\n  - name: host\n    capacity: {memory_mb: 1000, cpu_cores: 4}\n")
    run(*words, *hosts)
    assert asked["planned"][0].latency == () and str(asked["objective"]) == "p95 ≤ 5 ms", "the calibration has a curve of its own"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--verify-cores", 1), "apply to --verify; give the number of hosts"),
        (("--verify", 1000), "--verify 1000: the plan has .* hosts with databases"),
    ],
)
def test_a_verification_that_cannot_be_is_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        run(*INPUTS, *arguments)


def test_many_slots_are_thinned_out_and_cpu_is_required(monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr("pgherd.cli.run_study.run_study", lambda study, options, **_: asked.update(options) or 0)
    (tmp_path / "hosts.yaml").write_text("classes:\n  - name: m\n    capacity: {cpu_cores: 4, memory_mb: 4}\n")
    for resource in ("cpu_cores", "memory_mb"):
        lines = [f"database,time,{resource}", *(f"a,{slot},{slot / 100}" for slot in range(48))]
        (tmp_path / f"{resource}.csv").write_text("\n".join(lines) + "\n")
    run(tmp_path / "cpu_cores.csv", "--hosts", tmp_path / "hosts.yaml", "--verify", 1)
    assert len(asked["slots"]) == 24 and asked["planned"][0].cpu[0][:3] == pytest.approx((0, 0.02, 0.04))
    with pytest.raises(UsageError, match="has no cpu_cores; add this column"):
        run(tmp_path / "memory_mb.csv", "--hosts", tmp_path / "hosts.yaml", "--verify", 1)
