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
    assert sorted(path.name for path in directory.iterdir()) == ["hosts.csv", "hosts.yaml", "placement.csv", "plan.html", "plan.json"]
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


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "no host is given"),
        (("--hosts", "h.yaml", "--max-moves", 1, "--lost-hosts", 1), "give one of them"),
        (("--hosts", "h.yaml", "--max-moves", 1), "in the column 'host' of --constraints"),
        (("--hosts", "none.yaml"), "none.yaml: No such file"),
    ],
)
def test_bad_options(arguments, message):
    with pytest.raises(UsageError, match=message):
        run("demand.csv", *arguments)


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
