"""A working set for real: containers of several sizes, one of which no server lives in."""

from __future__ import annotations

import json

import pytest

FINE = (0, 1)
"""Exit codes of a run that came to its end: 1 says only that its numbers are tainted."""
CANNOT = 3
QUICK = ("--scale", "32", "--clients", "2", "--duration", "1s", "--warmup", "500ms", "--no-report", "--seed", "1")


def test_both_sweeps(pgherd):
    ended = pgherd(
        "working-set", *QUICK, "--memory-sizes", "52MB,112MB", "--shared-buffers-sizes", "40MB", "--extra-memory", "60MB", "--json"
    )
    if ended.code == CANNOT:
        pytest.skip(f"memory cannot be limited here: {ended.message}")
    assert ended.code in FINE, ended
    document = json.loads(ended.out)
    assert document["schema"] == "pgherd/working-set/2"
    trials = pgherd.trials()
    assert len({json.dumps(trial["trial"]["point"]) for trial in trials}) == 3
    lived = [trial for trial in trials if trial["error"] is None]
    assert lived
    for trial in lived:
        point, metrics = trial["trial"]["point"], trial["phases"][0]["metrics"]
        assert metrics["container:db01"]["memory.usage"] <= point["memory"] * 2**20
        assert (
            0 < metrics["server:db01/pg"]["buffers.reused"] <= metrics["server:db01/pg"]["buffers.used"] <= point["shared_buffers"] * 2**20
        )
    roomy = next(t for t in lived if t["trial"]["point"]["memory"] == 112)
    tight = min(lived, key=lambda t: t["trial"]["point"]["memory"] if t["trial"]["point"]["sweep"] == "memory" else 10**6)
    again = [t["phases"][0]["metrics"]["container:db01"].get("memory.refaults_file", 0.0) for t in (roomy, tight)]
    assert again[0] < again[1], "what does not fit is read again"
    assert set(document["findings"]) >= {
        "working_set.2",
        "shared_buffers_needed.2",
        "headroom",
        "max_safe_overcommit",
        "double_buffering_dip.memory",
        "working_set_from_memory_in_use.2",
    }
    rows = document["tables"]["sweep"]
    assert {(row["varied"], row["memory"]) for row in rows} == {
        ("shared buffers", 100),
        ("container memory", 52),
        ("container memory", 112),
    }
    pgherd.judged_fairly()


def test_what_does_not_live_is_a_result(pgherd):
    """Shared buffers alone are more than the container may have."""
    ended = pgherd("working-set", *QUICK, "--vary", "memory", "--shared-buffers", "40MB", "--memory-sizes", "16MB,128MB", "--json")
    if ended.code == CANNOT:
        pytest.skip(f"memory cannot be limited here: {ended.message}")
    assert ended.code in FINE, ended
    rows = {row["memory"]: row for row in json.loads(ended.out)["tables"]["sweep"]}
    assert rows[128]["state"] == "ok"
    if rows[16]["state"] == "ok":
        pytest.skip("this host has swap, by which a container lives that is too small")
    assert rows[16]["state"] in ("out-of-memory", "failed") and rows[16]["throughput"] is None
    pgherd.ended_well(ended)
