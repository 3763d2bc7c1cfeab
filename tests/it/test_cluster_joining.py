"""The other ways to come to hosts: an environment sent to one that has nothing, and the Dask scheduler and workers of somebody else."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pgherd.cluster import certificates

NAMES = ("a", "b")
SCHEDULER = "tls://10.204.0.254:8799"
CALM = (
    *("--threshold", "max_background_cpu=9", "--threshold", "max_start_skew=5", "--threshold", "max_clock_uncertainty=1"),
    "--no-report",
    "--json",
)


@pytest.fixture(scope="module")
def bed(cluster):
    """Two hosts without agents, and without a way to anything but each other and the driver."""
    return cluster(*NAMES, agents=False)


def trials(bed, study):
    (run,) = (bed.root / "driver/runs").glob(f"*-{study}-*")
    documents = [json.loads(file.read_text()) for file in sorted(run.glob("trials/*/trial.json"))]
    assert documents and not any(trial["error"] for trial in documents), [trial["error"] for trial in documents]
    return run, documents


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_host_that_has_nothing_gets_all_of_it_over_ssh(bed):
    start = ("cluster", "start", "--hosts", "a", "--ssh-config", str(bed.config), "--private-venv")
    started = bed.pgherd(*start, "--json", timeout=280)
    assert started.returncode == 0, started.stderr
    assert "with the libraries of this machine" in started.stderr
    (host,) = json.loads(started.stdout)["hosts"]
    assert host["reason"] is None and "embedded" in host["software"]["PostgreSQL"]

    environments = bed.root / "a/cache/pgherd/agents"
    agent = bed.agent("a")
    assert Path(f"/proc/{agent}/cmdline").read_text().startswith(str(environments))
    compiled = {Path(line.split()[-1]) for line in Path(f"/proc/{agent}/maps").read_text().splitlines() if "site-packages" in line}
    assert compiled and all(path.is_relative_to(environments) for path in compiled), compiled

    os.kill(agent, 9)  # a new agent finds the environment
    again = bed.pgherd(*start)
    assert again.returncode == 0 and "libraries" not in again.stderr, again.stderr

    arguments = (
        "density",
        "--cluster",
        "default",
        "--databases",
        "1",
        "--scale",
        "1",
        "--duration",
        "1s",
        "--warmup",
        "0s",
        "--repeats",
        "1",
    )
    ran = bed.pgherd(
        *arguments, "--host-cores", "1", "--host-memory", "1GB", "--time-budget", "1s", "--pg-version", "18", *CALM, timeout=280
    )
    assert ran.returncode in (0, 1), ran.stderr
    _, (trial, *_) = trials(bed, "density")
    (container,) = trial["trial"]["deployment"]["hosts"][0]["containers"]
    assert container["servers"][0]["bin"].startswith(str(environments)), "the PostgreSQL that came with it"
    assert bed.pgherd("cluster", "stop").returncode == 0


def test_a_command_in_step_on_the_workers_of_another_scheduler(bed):
    tls = bed.root / "tls"
    tls.mkdir()
    authority = certificates.authority("theirs")
    certificates.write_private(tls / certificates.AUTHORITY, authority.certificate)
    certificates.write_private(tls / certificates.MEMBER, authority.issue("member"))
    files = ["--tls-ca-file", str(tls / certificates.AUTHORITY), "--tls-cert", str(tls / certificates.MEMBER)]
    dask = [sys.executable, "-P", "-m", "dask"]
    host, port = SCHEDULER.removeprefix("tls://").split(":")
    with bed.inside(), open(bed.root / "scheduler.log", "wb") as log:
        scheduler = subprocess.Popen(
            [*dask, "scheduler", "--host", host, "--port", port, "--protocol", "tls", "--no-dashboard", "--no-show", *files],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=bed.root,
        )  # fmt: skip
    try:
        for name in NAMES:
            own = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name, "--local-directory", str(bed.root / name)]
            worker = shlex.join([*dask, "worker", SCHEDULER, *own, *files])
            begun = bed.ssh(name, f"setsid {worker} >{bed.root / name / 'worker.log'} 2>&1 </dev/null &")
            assert begun.returncode == 0, begun.stderr
        location = ("--cluster", SCHEDULER, "--cluster-certs", str(tls))
        for _ in range(60):
            planned = bed.pgherd("exec", *location, "--dry-run", "--json", "--", "true")
            if planned.returncode == 0 and set(json.loads(planned.stdout)["hosts"]) == set(NAMES):
                break
        else:
            pytest.fail(planned.stderr)
        ran = bed.pgherd("exec", *location, "--repeats", "1", *CALM, "--", "sh", "-c", "cat /proc/self/net/fib_trie; exec sleep 1")
        assert ran.returncode in (0, 1), ran.stderr
    finally:
        scheduler.terminate()
        scheduler.wait(20)
    run, (trial, *_) = trials(bed, "exec")  # a trial whose verdicts taint it is repeated
    for name in NAMES:
        assert bed.address(name) in (run / "trials/0001/drivers/00-command" / name / "stdout").read_text(), "each ran it for itself"
    assert {f"host:{name}" for name in NAMES} <= set(trial["phases"][0]["metrics"])
    assert {row["host"] for row in json.loads(ran.stdout)["tables"]["exec"]} == set(NAMES)
