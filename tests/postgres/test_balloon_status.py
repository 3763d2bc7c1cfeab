"""Text form of a balloon's status. tests/it/test_balloon.py queries real servers."""

from __future__ import annotations

import json

from pgherd.postgres.balloon_status import BalloonStatus

MB = 2**20
STATUS = {
    "usable": True, "unusable_reason": None, "enabled": True, "shared_buffers_bytes": 400 * MB,
    "ballooned_bytes": 100 * MB, "target_bytes": None,
    "floor_bytes": 32 * MB, "ceiling_bytes": 360 * MB, "resident_bytes": 250 * MB, "balloon_resident_bytes": 0,
    "working_set_bytes": 200 * MB,
    "source": "cgroup2", "cgroup_path": "/sys/fs/cgroup/a", "limit_bytes": 512 * MB, "available_bytes": 64 * MB, "refaults_per_s": 12.0,
    "swap_out_bytes_per_s": 0.0, "psi_share": 0.1, "misses_per_s": 42.0, "page_read_ms": 0.21,
    "state": "nothing to do", "decision": "inflated",
    "decision_bytes": 100 * MB, "decision_reason": "memory is short", "decision_at": None, "worker_pid": 7,
}  # fmt: skip
COUNTERS = {"inflated_unused": 10, "inflated_clean": 20, "deflated": 5, "prefetched": 3, "buffers_written": 1}


def test_a_balloon_in_words():
    lines = dict(BalloonStatus("host=h", "17.2", True, True, STATUS, COUNTERS).lines())
    assert lines["balloon"].startswith("100 MB (25% of the pool)")
    assert lines["memory"] == "64 MB available of 512 MB (/sys/fs/cgroup/a)"
    assert "42 misses/s of 0.21 ms" in lines["signals"]
    assert "30 buffers given, 5 taken back" in lines["since reset"]
    assert "stuck" not in lines and lines["enabled"] == "yes"


def test_before_the_first_tick_and_switched_off():
    now = STATUS | dict.fromkeys(("limit_bytes", "available_bytes", "working_set_bytes", "decision", "worker_pid", "state"))
    lines = dict(BalloonStatus("host=h", "15.1", True, False, now).lines())
    assert "memory" not in lines and "last decision" not in lines
    assert lines["enabled"].startswith("no: set pg_balloon.enabled") and lines["server"].endswith("not running")


def test_what_it_does_is_said_also_where_nothing_was_seen_of_the_memory():
    now = STATUS | {"limit_bytes": None, "available_bytes": None, "working_set_bytes": None, "state": "pg_balloon.target"}
    lines = dict(BalloonStatus("host=h", "15.1", True, True, now).lines())
    assert lines["now"] == "pg_balloon.target" and "memory" not in lines


def test_a_server_that_cannot_have_one():
    found = BalloonStatus("host=h", "15.1", True, True, STATUS | {"usable": False, "unusable_reason": "huge pages"})
    assert dict(found.lines())["balloon"] == "cannot be used: huge pages"


def test_a_target_and_stuck_memory_are_said():
    lines = dict(BalloonStatus("host=h", "15.1", True, True, STATUS | {"target_bytes": 40 * MB, "balloon_resident_bytes": MB}).lines())
    assert "kept at 40 MB by pg_balloon.target" in lines["enabled"] and lines["stuck"].startswith("1 MB")


def test_as_a_document():
    document = BalloonStatus("host=h", "15.1", False, advice="load it").document()
    assert json.loads(json.dumps(document))["advice"] == "load it" and document["status"] is None
