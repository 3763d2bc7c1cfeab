"""Studies of one server at a time over two hosts: scaling with its clients on the other host, and a comparison in turn on both."""

import json
import os
import shutil
import signal
import time

import pytest

from pgherd.node.local import LocalNode
from pgherd.postgres import installations

NAMES = ("a", "b")
QUICK = (
    *(
        "--cluster",
        "default",
        "--host-cores",
        "1",
        "--host-memory",
        "1GB",
        "--scale",
        "1",
        "--duration",
        "1s",
        "--warmup",
        "500ms",
        "--seed",
        "1",
    ),
    # The hosts share one machine, and so does whatever else runs on it: that is no fault of what is tested here.
    *(
        "--threshold",
        "max_background_cpu=9",
        "--threshold",
        "max_start_skew=5",
        "--threshold",
        "max_clock_uncertainty=1",
        "--no-report",
        "--json",
    ),
)
SHARED = ("density", *QUICK, "--scale", "2", "--databases", "2", "--vcpus", "0.25", "--repeats", "1", "--time-budget", "2s")
PADDING = 512 * 2**20
PATIENCE = 120.0


@pytest.fixture(scope="module")
def bed(cluster):
    """Two hosts with an agent on each."""
    return cluster(*NAMES)


def trials(bed, study):
    (run,) = (bed.root / "driver/runs").glob(f"*-{study}-*")
    return [json.loads(file.read_text()) for file in sorted(run.glob("trials/*/trial.json"))]


def copies(bed, name):
    """The markers of a host's templates of scale 2."""
    return sorted((bed.root / name / "cache/pgherd/golden").glob("pg*-pgbench-2-*/golden.json"))


def leftovers(bed):
    return [str(path) for name in NAMES for path in (bed.root / name / "cache/pgherd/work").glob("*")] + bed.pids("a", "postgres")


def test_one_server_s_curve_with_its_clients_on_another_host(bed):
    if not any(element.kind == "system" for element in installations.find_all(LocalNode())):
        pytest.skip("no PostgreSQL with TLS: the embedded one is built without OpenSSL")
    location = ("--placement", "label:host=b", "--client-host", "a")
    finished = bed.pgherd("scaling", *QUICK, *location, "--clients", "1,2", "--repeats", "1", "--time-budget", "3s")
    assert finished.returncode in (0, 1), finished.stderr
    document = json.loads(finished.stdout)
    result = trials(bed, "scaling")
    assert len(result) >= 2 and not any(trial["error"] for trial in result), [trial["error"] for trial in result]
    item = result[0]
    (phase,) = item["phases"]
    (target,) = phase["targets"]
    assert target["target"] == "b/db01/pg/bench" and target["throughput"] > 0 and target["client_cpu"] > 0
    assert item["trial"]["phases"][0]["loads"][target["target"]]["host"] == "a"
    assert "container:db01" in phase["metrics"], "the server's CPU is seen where it runs"
    assert {"host:a", "host:b"} <= set(phase["metrics"])
    judged = {verdict["name"]: verdict for verdict in item["checks"]}
    assert judged["cached"]["result"] == "pass" and judged["cached"]["observed"].startswith("b: "), judged["cached"]
    assert judged["not-client-bound"]["observed"].startswith("a: ") and judged["not-client-bound"]["result"] != "unknown"
    assert judged["all-hosts-present"]["result"] == "pass" and judged["all-hosts-present"]["observed"] == "2 of 2"
    rows = {row["host"]: row for row in document["tables"]["hosts"]}
    assert rows["b"]["containers"] == 1 and rows["a"]["containers"] == 0
    (run,) = (bed.root / "driver/runs").glob("*-scaling-*")
    settings = json.loads((run / "run.json").read_text())
    assert settings["environment"]["cluster"]["client"] == "a" and "password" not in json.dumps(settings).lower()
    assert leftovers(bed) == []


def test_a_comparison_whose_blocks_take_turns_on_the_hosts(bed):
    finished = bed.pgherd("compare", *QUICK, "--variant", "other:protocol=simple", "--max-blocks", "2")
    assert finished.returncode in (0, 1), finished.stderr
    document = json.loads(finished.stdout)
    result = trials(bed, "compare")
    hosts = {}
    for trial in result:
        (host,) = (host["name"] for host in trial["trial"]["deployment"]["hosts"])
        hosts.setdefault(trial["trial"]["repeat"], set()).add(host)
    assert hosts[0] == {"a"} and hosts[1] == {"b"}, "each block is whole on one host"
    assert not any(trial["error"] for trial in result), [trial["error"] for trial in result]
    assert [row["host"] for row in document["tables"]["by_host"]] == ["a", "b"]
    assert {row["host"] for row in document["tables"]["hosts"]} == set(NAMES)
    assert leftovers(bed) == []


@pytest.mark.long  # three trials of each number
def test_density_on_two_hosts_has_a_grade(bed):
    words = ("--databases", "1,2", "--vcpus", "0.25", "--repeats", "3", "--time-budget", "40s", "--threshold", "max_steal=1")
    before = runs(bed)
    finished = bed.pgherd("density", *QUICK, *words)
    document = json.loads(finished.stdout)
    assert finished.returncode == 0 and document["grade"] in ("A", "B"), (document, finished.stderr)
    (run,) = runs(bed) - before
    documents = [json.loads(file.read_text()) for file in run.glob("trials/*/trial.json")]
    assert len(documents) >= 6 and not [trial["error"] for trial in documents if trial["error"]]


def test_a_template_that_one_host_has_is_carried_to_the_other(bed):
    finished = bed.pgherd(*SHARED)
    assert finished.returncode in (0, 1), finished.stderr
    (own,), (other,) = copies(bed, "a"), copies(bed, "b")
    first, second = json.loads(own.read_text()), json.loads(other.read_text())
    assert first["made"] != second["made"] and "copied from" not in finished.stderr, "neither had it: each has made its own"

    own.write_text(json.dumps({**first, "seconds": 1e6}))  # so long that no machine is too busy to carry it sooner
    shutil.rmtree(other.parent)
    before = runs(bed)
    finished = bed.pgherd(*SHARED)
    assert finished.returncode in (0, 1), finished.stderr
    assert f"template {first['key']} copied from a to b: " in finished.stderr, finished.stderr
    (other,) = copies(bed, "b")
    came = json.loads(other.read_text())
    assert other.parent.name == own.parent.name and came["made"] == first["made"] and other.parent.owner() == "root"
    assert {path.owner() for path in (other.parent / "data").rglob("*")} == {path.owner() for path in (own.parent / "data").rglob("*")}
    (run,) = runs(bed) - before
    documents = [json.loads(file.read_text()) for file in sorted(run.glob("trials/*/trial.json"))]
    assert not any(trial["error"] for trial in documents), [trial["error"] for trial in documents]
    at_once = [phase["targets"] for trial in documents for phase in trial["phases"] if len(phase["targets"]) == 2]
    assert at_once and all(
        target["target"].split("/")[0] in NAMES and target["throughput"] > 0 for targets in at_once for target in targets
    )
    assert [path.name for path in other.parents[1].iterdir() if path.name.startswith(".unfinished")] == [] and leftovers(bed) == []


@pytest.mark.parametrize("dies", NAMES)
def test_a_host_that_dies_while_a_template_is_carried(bed, chance, dies):
    if not copies(bed, "a"):
        assert bed.pgherd(*SHARED).returncode in (0, 1)
    (own,) = copies(bed, "a")
    for other in copies(bed, "b"):
        shutil.rmtree(other.parent)
    own.write_text(json.dumps({**json.loads(own.read_text()), "seconds": 1e6}))
    padding = own.parent / "data/base/padding"  # so that it takes long enough to be hit; PostgreSQL does not look at it
    padding.write_bytes(b"")
    shutil.copystat(own.parent / "data/PG_VERSION", padding)
    owner = (own.parent / "data/PG_VERSION").stat()
    os.chown(padding, owner.st_uid, owner.st_gid)
    os.truncate(padding, PADDING)
    golden, before, moment = bed.root / "b/cache/pgherd/golden", runs(bed), chance.uniform(0.0, 0.9) * PADDING

    process = bed.start(*SHARED, "--repeats", "4", "--time-budget", "15s")  # so that there is time for another trial
    deadline = time.monotonic() + PATIENCE
    while not any(file.stat().st_size > moment for file in golden.glob(".unfinished-*/data/base/padding")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing is carried"
        time.sleep(0.005)
    os.kill(bed.agent(dies), signal.SIGKILL)
    padding.unlink()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 1) and "Traceback" not in err, err
    assert f"host {dies} is lost" in err and "copied from" not in err, err
    (run,) = runs(bed) - before
    (remaining,) = set(NAMES) - {dies}
    documents = [json.loads(file.read_text()) for file in sorted(run.glob("trials/*/trial.json"))]
    complete = [trial for trial in documents if not trial["error"]]
    assert complete and all([host["name"] for host in trial["trial"]["deployment"]["hosts"]] == [remaining] for trial in complete), (
        documents
    )

    bed.start_agents()
    finished = bed.pgherd(*SHARED)
    assert finished.returncode in (0, 1) and ("copied from a to b" in finished.stderr) is (dies == "b"), finished.stderr
    assert all(len(copies(bed, name)) == 1 for name in NAMES) and list(golden.glob(".unfinished-*")) == [] and leftovers(bed) == []


def runs(bed):
    return set((bed.root / "driver/runs").glob("*-density-*"))
