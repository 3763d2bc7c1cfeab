"""`density --tenants` with idle servers: their memory against the cgroups themselves, and that nothing wakes them up."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode

SERVERS = 4
NAME = f"idle{os.getpid()}"
"""A class that no other run on this machine has, because its cgroups are found by their name."""
ANY_LOAD = ("--threshold", "max_background_cpu=1", "--threshold", "max_steal=1")
"""Thresholds with which no background load taints a trial: the memory of idle servers does not depend on it."""
USAGE = ("memory.usage_in_bytes", "memory.current")


def run(pgherd, tmp_path: Path, memory: str, *words: str) -> tuple[str, ...]:
    (tmp_path / "idle.yaml").write_text(f"classes:\n  - {{name: {NAME}, count: 1, vcpus: 0.25, {memory}scale: 1, activity: idle}}\n")
    pgherd.patience = 300.0
    words = ("--databases", str(SERVERS), "--duration", "4s", *ANY_LOAD, *words)
    return ("density", "--tenants", str(tmp_path / "idle.yaml"), *words, "--json")


def cgroups() -> list[Path]:
    """Return the files with the memory of the servers' cgroups, or nothing while one is missing."""
    try:
        found = [path / file for path in Path("/sys/fs/cgroup").glob(f"**/{NAME}-0*") for file in USAGE if (path / file).exists()]
    except FileNotFoundError:  # the cgroup of another process ended meanwhile
        return []
    return found if len(found) == SERVERS else []


def test_memory_is_the_sum_over_the_cgroups(pgherd, tmp_path) -> None:
    try:
        cgroup_parent.find(LocalNode())
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))
    sums: list[tuple[float, int]] = []
    process = pgherd.start(*run(pgherd, tmp_path, "memory: 96MB, ", "--repeats", "2"))
    files = pgherd.wait_until(lambda: cgroups() or process.poll() is not None, pause=0.1)
    while process.poll() is None:
        try:
            sums.append((time.time(), sum(int(file.read_text()) for file in files)))
        except OSError:  # the run has removed them
            break
        time.sleep(0.1)
    ended = pgherd.end(process)
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    (row,) = document["tables"]["idle_servers"]
    phases = [trial["phases"] for trial in pgherd.trials()]
    windows = [(idle["start"], idle["end"]) for idle, _ in phases]
    seen = [used for at, used in sums if any(start <= at <= end for start, end in windows)]
    assert len(windows) == 2 and seen
    assert SERVERS * row["memory_charged"]["value"] * 2**20 == pytest.approx(statistics.fmean(seen), rel=0.03)
    assert document["findings"]["memory_ratio"]["value"] == pytest.approx(1, abs=0.03)
    assert 0 < row["memory_without_cache"]["value"] <= row["memory_charged"]["value"] and row["wakeups"]["value"] > 0
    assert row["first_query"]["n"] == 2 * SERVERS and 0 < row["first_query"]["value"] <= row["first_query_max"]["value"]
    assert " idle servers fit into " in document["answer"]
    for idle, first in phases:
        assert idle["targets"] == [] and len(first["targets"]) == SERVERS
        assert not any(entity.startswith("backend:") for entity in idle["metrics"]), "no statement of pgherd runs on them"
        servers = [values for entity, values in idle["metrics"].items() if entity.startswith("server:")]
        assert len(servers) == SERVERS and all(values["autovacuum.runs"] >= 0 and "db.xact_commit" not in values for values in servers)
    pgherd.ended_well(ended)


def test_without_cgroups_it_reports_the_rest(pgherd, tmp_path) -> None:
    ended = pgherd(*run(pgherd, tmp_path, "", "--runtime", "process", "--repeats", "1"))
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    (row,) = document["tables"]["idle_servers"]
    assert document["findings"]["capacity"]["value"] is None and "no cgroup counts their memory" in document["answer"]
    assert row["first_query"]["n"] == SERVERS and row["wakeups"]["value"] > 0 and row["memory_charged"]["value"] is None
