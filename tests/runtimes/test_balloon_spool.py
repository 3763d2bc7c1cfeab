import json

from pgherd.metrics.spool import Spool
from pgherd.runtimes.balloon_spool import BALLOON, DRIVES, FIRST, MANAGER, BalloonSpool

SEEN = {"memory": 400, "minimum": 100, "actual": 300, "target": 250, "working_set": 200, "at": 12.0, "last_update": 10}
STATS = {"stats": {"stat-free-memory": 7, "stat-swap-in": 18446744073709551615}}
DRIVE = {"device": "data", "stats": {"rd_operations": 3, "wr_operations": 4, "rd_total_time_ns": 5, "wr_total_time_ns": 6}}


def test_its_lines_become_metrics_beside_those_of_the_sampling_loop(tmp_path) -> None:
    path = tmp_path / "spool.jsonl"
    path.write_text('{"sources":[["vmstat","host","file","/proc/vmstat",""]],"first":0}\n{"t":11.5,"i":0,"raw":"pswpin 3\\n"}\n')
    spool = BalloonSpool(path)
    spool.write([(12.0, BALLOON, "a", SEEN | STATS), (12.1, DRIVES, "a", [DRIVE]), (12.2, BALLOON, "b", "it has ended")])
    spool.write([])
    spool.close()
    with path.open() as lines:
        read = Spool(lines)
        found = [(t, entity, values) for t, _, entity, values in read]
    assert [(t, entity) for t, entity, _ in found] == [(11.5, "host"), (12.0, "guest:a"), (12.1, "guest-drive:a/data")]
    values = found[1][2]
    assert values["guest.ballooned"] == 100 and values["guest.free"] == 7 and values["guest.statistics_age"] == 2
    assert "guest.swap_in" not in values, "the guest does not tell"
    assert [(source.entity, failure.last) for source, failure in read.failures.items()] == [("guest:b", "it has ended")]


def test_every_line_is_whole_and_looks_like_the_loops(tmp_path) -> None:
    spool = BalloonSpool(tmp_path / "s")
    spool.write([(1.0, BALLOON, "a", SEEN | STATS)])
    spool.close()
    announced, reading = (tmp_path / "s").read_text().splitlines()
    assert json.loads(announced)["first"] == FIRST
    assert reading.startswith(f'{{"t":1.0,"i":{FIRST},')


def test_a_full_disk_is_kept_and_does_not_raise() -> None:
    from pathlib import Path

    if not Path("/dev/full").exists():
        return
    spool = BalloonSpool(Path("/dev/full"))
    spool.write([(1.0, BALLOON, "a", {})])
    spool.write([(2.0, BALLOON, "a", {})])
    assert spool.error is not None
    spool.close()


def test_what_the_manager_says_of_itself_is_of_no_guest(tmp_path) -> None:
    spool = BalloonSpool(tmp_path / "s")
    spool.write([(1.0, MANAGER, "", {"cpu": 0.5})])
    spool.close()
    with (tmp_path / "s").open() as lines:
        assert list(Spool(lines)) == [(1.0, "balloon_manager", "platform:balloon-manager", {"cpu.usage": 0.5})]
