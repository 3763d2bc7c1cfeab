"""Density over two hosts, each a set of namespaces of its own: in step, watched, and through every way of losing the driver or a host."""

import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from pgherd.report.live_status import LiveRun
from pgherd.store.run_directory import RunDirectory
from pgherd.store.samples import read_samples

NAMES = ("a", "b")
MEMORY = 2 * 2**30
PORT = 9187
"""For metrics, in the driver's own network."""
PATIENCE = 120.0
WORDS = (
    *("density", "--cluster", "default", "--host-cores", "1", "--host-memory", "1GB", "--vcpus", "0.5", "--scale", "1", "--databases", "2"),
    *("--warmup", "1s", "--seed", "1", "--no-report", "--json"),
    # The hosts share one machine, and so does whatever else runs on it: that is no fault of what is tested here.
    *("--threshold", "max_background_cpu=9", "--threshold", "max_start_skew=5", "--threshold", "max_clock_uncertainty=1"),
)


@pytest.fixture(scope="module")
def bed(cluster):
    """Two hosts with an agent on each."""
    return cluster(*NAMES)


@pytest.fixture
def run(bed):
    """Gives the one run that the test makes, once it is there."""
    before = set((bed.root / "driver/runs").glob("*-density-*"))

    def new():
        result = set((bed.root / "driver/runs").glob("*-density-*")) - before
        assert len(result) < 2
        return next(iter(result), None)

    return new


def wait(process, finished, what):
    """What ``done`` gives, once that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (result := finished()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE:.0f} s"
        time.sleep(0.05)
    return result


def trials(run):
    return [json.loads(file.read_text()) for file in sorted(run.glob("trials/[0-9][0-9][0-9][0-9]/trial.json"))] if run else []


def wait_for_trials(process, run, count):
    wait(process, lambda: len(trials(run())) >= count, f"{count} trials")


def hosts_of(trial):
    return [host["name"] for host in trial["trial"]["deployment"]["hosts"]]


def verdicts(trial):
    return {check["name"]: check for check in trial["checks"]}


def leftovers(bed, name):
    return [str(path) for path in (bed.root / name / "cache/pgherd/work").glob("*")] + bed.pids(name, "postgres")


def test_density_over_two_hosts_through_a_killed_driver_and_a_killed_agent(bed, run, chance):
    first = bed.start(*WORDS, "--duration", "2s", "--repeats", "5", "--time-budget", "20s")  # all of one batch, and little time for more
    wait_for_trials(first, run, 1)
    time.sleep(chance.uniform(0.0, 2.5))  # at any moment of the next trial
    first.kill()
    first.communicate()
    finished, run = len(trials(run())), run()
    retained = {path: path.read_bytes() for path in run.glob("trials/0001/*.json")}

    second = bed.start("resume", "last", "--no-report", "--json")
    wait_for_trials(second, lambda: run, finished + 1)
    time.sleep(chance.uniform(0.0, 2.5))
    agent = bed.agent("b")
    os.kill(agent, signal.SIGKILL)
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode in (0, 1), err
    document = json.loads(out)

    assert {path: path.read_bytes() for path in retained} == retained, "a finished trial is kept as it is"
    result = trials(run)
    complete = result[0]
    assert complete["error"] is None and hosts_of(complete) == list(NAMES)
    assert {target["target"] for target in complete["phases"][0]["targets"]} == {"a/db01/pg/bench", "b/db02/pg/bench"}
    assert verdicts(complete)["all-hosts-present"]["result"] == "pass" and verdicts(complete)["clock-offset"]["result"] == "pass"
    assert max(trial["phases"][0]["overlap"] for trial in result if trial["phases"]) >= 0.95
    assert {"host", "host:a", "host:b", "pgherd:a", "pgherd:b"} <= set(complete["phases"][0]["metrics"])
    samples = read_samples(run / "trials/0001", "cpu", "cpu.user")
    assert {entity for _, entity, _ in samples} == {"host:a", "host:b"}
    start, end = complete["phases"][0]["start"], complete["phases"][0]["end"]
    assert all(any(start <= t <= end for t, entity, _ in samples if entity == f"host:{name}") for name in NAMES)
    for target in complete["phases"][0]["targets"]:
        assert all((run / "trials/0001" / path).is_file() for path in target["raw"])

    lost = [trial for trial in result if trial["error"]]
    assert lost and "host b is lost" in lost[0]["error"] and verdicts(lost[0])["all-hosts-present"]["result"] == "fail"
    after = [trial for trial in result if trial["id"] > lost[0]["id"]]
    assert after and all(hosts_of(trial) == ["a"] for trial in after)
    assert all(verdicts(trial)["all-hosts-present"]["result"] == "fail" for trial in after), "less of everything: no equal of the others"
    assert document["study"] == "density" and {row["host"] for row in document["tables"]["hosts"]} == set(NAMES)
    assert any("ran without all hosts" in warning for warning in document["warnings"])
    assert leftovers(bed, "a") == [] and bed.pids("b", "postgres") == []

    bed.start_agents()


def test_where_containers_lie_is_planned(bed):
    plan = bed.pgherd(*WORDS, "--dry-run", "--placement", "listed:db02=a,*=b")
    assert plan.returncode == 0, plan.stderr
    placed = {
        host["name"]: [container["name"] for container in host["containers"]] for host in json.loads(plan.stdout)["deployment"]["hosts"]
    }
    assert placed == {"a": ["db02"], "b": ["db01"]}
    refused = bed.pgherd(*WORDS, "--dry-run", "--placement", "label:disk=nvme")
    assert refused.returncode == 2 and "no host has the label disk=nvme; existing labels: host=a, host=b" in refused.stderr
    assert leftovers(bed, "a") == [] and leftovers(bed, "b") == []


def test_a_host_that_hangs_or_is_cut_off_is_lost_and_used_again_when_it_is_back(bed, run, chance):
    process = bed.start(*WORDS, "--duration", "2s", "--repeats", "40", "--time-budget", "300s", "--metrics-listen", str(PORT))

    def next_trial(fits, after, what):
        return wait(process, lambda: next((trial for trial in trials(run()) if trial["id"] > after and fits(trial)), None), what)

    try:
        observed = wait(process, lambda: shown(run()), "glimpse of both hosts")
        assert {host.name for host in observed.hosts} == set(NAMES) and observed.throughput.value > 0 and len(observed.containers) == 2
        reported = scraped(bed)
        for name in NAMES:
            assert f'host="{name}",mode="user"' in reported and f'target="{name}/db0' in reported, reported
        complete = next_trial(lambda item: True, "", "first trial")
        assert complete["error"] is None and hosts_of(complete) == list(NAMES)
        assert not (run() / "trials/0001/spool.jsonl").exists() and not (run() / "trials/0001/told").exists()
        last = complete["id"]
        for lose, find in ((stopped, continued), (cut, mended)):
            time.sleep(chance.uniform(0.0, 4.0))  # at any moment of a trial, or between two
            lose(bed, "b")
            try:
                lost = next_trial(lambda element: element["error"], last, "trial that lost a host")
            finally:
                find(bed, "b")
            assert "host b is lost" in lost["error"] and verdicts(lost)["all-hosts-present"]["result"] == "fail"
            again = next_trial(lambda one: not one["error"] and hosts_of(one) == list(NAMES), lost["id"], "trial with both hosts")
            assert verdicts(again)["all-hosts-present"]["result"] == "pass" and again["phases"][0]["overlap"] > 0
            last = again["id"]
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert json.loads((run() / "run.json").read_text())["state"] == "interrupted"
    assert all(leftovers(bed, name) == [] for name in NAMES)


def shown(run):
    """What is seen of a run once both hosts have shown something of it."""
    if run is None or not (run / "run.json").exists():
        return None
    if run not in _watched:
        _watched[run] = LiveRun(RunDirectory(run))
    observed = _watched[run].look()
    complete = observed.throughput is not None and observed.throughput.value and observed.host is not None and observed.host.cpu is not None
    return observed if complete else None


_watched: dict[Path, LiveRun] = {}


def scraped(bed):
    with bed.inside(), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=20) as answer:
        return answer.read().decode()


def stopped(bed, name):
    os.kill(bed.agent(name), signal.SIGSTOP)


def continued(bed, name):
    os.kill(bed.agent(name), signal.SIGCONT)


def cut(bed, name):
    bed.cut(name)


def mended(bed, name):
    bed.mend(name)
