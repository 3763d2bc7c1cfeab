"""Density over two hosts, each a set of namespaces of its own: in step, through a killed driver, and through a killed agent."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pgherd.store.samples import read_samples

pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

NAMES = ("a", "b")
MEMORY = 2 * 2**30
PATIENCE = 120.0
WORDS = (
    *("density", "--cluster", "default", "--cores", "1", "--host-memory", "1GB", "--vcpus", "0.5", "--scale", "1", "--points", "2"),
    *("--seconds", "2s", "--ramp", "1s", "--repeats", "4", "--budget", "17s", "--seed", "1", "--no-report", "--json"),
    # The hosts share one machine, and so does whatever else runs on it: that is no fault of what is tested here.
    *("--threshold", "foreign_cpu=9", "--threshold", "start_skew=5", "--threshold", "clock_offset=1"),
)


def _bed():
    path = Path(__file__).with_name("cluster_hosts.py")
    spec = importlib.util.spec_from_file_location("cluster_hosts_of_density", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bed():
    """Two hosts with an agent on each."""
    hosts = _bed()
    root = Path(tempfile.mkdtemp(prefix="it-density-", dir="/tmp"))
    root.chmod(0o755)
    made = hosts.Bed(root, NAMES, cores=1.0, memory=MEMORY)
    try:
        made.up()
    except hosts.NotToBeHad as error:
        shutil.rmtree(root)
        pytest.skip(str(error))
    try:
        start(made)
        yield made
        with contextlib.suppress(Exception):
            made.pgherd("cluster", "stop")
    finally:
        made.down()
        shutil.rmtree(root)


def start(bed):
    ended = bed.pgherd("cluster", "start", "--hosts", ",".join(NAMES), "--ssh-config", str(bed.config))
    assert ended.returncode == 0, ended.stderr


def runs(bed):
    return sorted((bed.root / "driver/runs").glob("*-density-*"))


def wait_for_trials(bed, process, count):
    deadline = time.monotonic() + PATIENCE
    while not runs(bed) or len(list((runs(bed)[-1] / "trials").glob("*/trial.json"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"fewer than {count} trials within {PATIENCE:.0f} s"
        time.sleep(0.05)


def trials(run):
    return [json.loads(file.read_text()) for file in sorted(run.glob("trials/*/trial.json"))]


def verdicts(trial):
    return {one["check"]: one for one in trial["verdicts"]}


def leftovers(bed, name):
    return [str(path) for path in (bed.root / name / "cache/pgherd/work").glob("*")] + bed.pids(name, "postgres")


def test_density_over_two_hosts_through_a_killed_driver_and_a_killed_agent(bed):
    first = bed.start(*WORDS)  # four trials, which are all of one batch, and no time for more
    wait_for_trials(bed, first, 1)
    first.kill()
    first.communicate()
    (run,) = runs(bed)
    kept = {path: path.read_bytes() for path in run.glob("trials/0001/*.json")}

    second = bed.start("resume", "last", "--no-report", "--json")
    wait_for_trials(bed, second, 2)
    agent = bed.agent("b")
    os.kill(agent, signal.SIGKILL)
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode in (0, 1), err
    document = json.loads(out)

    assert {path: path.read_bytes() for path in kept} == kept, "a finished trial is kept as it is"
    found = trials(run)
    whole = found[0]
    assert whole["error"] is None and [host["name"] for host in whole["trial"]["deployment"]["hosts"]] == list(NAMES)
    assert {target["target"] for target in whole["phases"][0]["targets"]} == {"a/db01/pg/bench", "b/db02/pg/bench"}
    assert verdicts(whole)["all-hosts"]["result"] == "pass" and verdicts(whole)["clock-offset"]["result"] == "pass"
    assert max(trial["phases"][0]["overlap"] for trial in found if trial["phases"]) >= 0.95
    assert {"host", "host:a", "host:b", "pgherd:a", "pgherd:b"} <= set(whole["phases"][0]["metrics"])
    samples = read_samples(run / "trials/0001", "cpu", "cpu.user")
    assert {entity for _, entity, _ in samples} == {"host:a", "host:b"}
    start, end = whole["phases"][0]["start"], whole["phases"][0]["end"]
    assert all(any(start <= t <= end for t, entity, _ in samples if entity == f"host:{name}") for name in NAMES)
    for target in whole["phases"][0]["targets"]:
        assert all((run / "trials/0001" / path).is_file() for path in target["raw"])

    lost = [trial for trial in found if trial["error"]]
    assert lost and "host b is lost" in lost[0]["error"] and verdicts(lost[0])["all-hosts"]["result"] == "fail"
    after = [trial for trial in found if trial["id"] > lost[0]["id"]]
    assert after and all([host["name"] for host in trial["trial"]["deployment"]["hosts"]] == ["a"] for trial in after)
    assert all(verdicts(trial)["all-hosts"]["result"] == "fail" for trial in after), "less of everything: no equal of the others"
    assert document["study"] == "density" and {row["host"] for row in document["tables"]["hosts"]} == set(NAMES)
    assert any("ran without all hosts" in warning for warning in document["warnings"])
    assert leftovers(bed, "a") == [] and bed.pids("b", "postgres") == []

    start_again = bed.pgherd("cluster", "start", "--hosts", ",".join(NAMES), "--ssh-config", str(bed.config))
    assert start_again.returncode == 0, start_again.stderr
    plan = bed.pgherd(*WORDS, "--dry-run", "--placement", "listed:db02=a,*=b")
    assert plan.returncode == 0, plan.stderr
    placed = {host["name"]: [one["name"] for one in host["containers"]] for host in json.loads(plan.stdout)["deployment"]["hosts"]}
    assert placed == {"a": ["db02"], "b": ["db01"]}
    refused = bed.pgherd(*WORDS, "--dry-run", "--placement", "label:disk=nvme")
    assert refused.returncode == 2 and "no host has the label disk=nvme; there are host=a, host=b" in refused.stderr
    assert leftovers(bed, "a") == [] and leftovers(bed, "b") == []
