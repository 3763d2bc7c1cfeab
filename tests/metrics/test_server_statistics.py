import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pgherd.metrics.sampler import SamplingView, ServerView
from pgherd.metrics.server_statistics import (
    BALLOON_STATEMENT,
    DATABASE,
    OBJECTIVE_WAITS,
    PG_BALLOON,
    PG_IO,
    PG_WAL,
    REPLICATION,
    WAITS,
    checkpoints,
    database_statement,
    wait_series,
    wal_statement,
)
from pgherd.node.protocol import SampleSource

# ---- pg_stat views


# ---- databases


SOURCE = SampleSource("database", "server:a/pg", "sql", "host=/s")


@pytest.mark.parametrize("version", ["15", "18"])
def test_reads_what_servers_answer(parsed, version: str) -> None:
    values = parsed("database", f"sql-database-{version}.json", entity="server:a/pg")["server:a/pg"]
    assert set(values) == {metric.name for metric in DATABASE.metrics}
    assert values["db.blks_hit"] > 1000 * values["db.blks_read"]
    assert 269 < values["checkpoint.write_time"] < 270
    assert values["wal.bytes"] > 40e6
    assert values["vacuum.workers"] == 0


def test_one_statement_per_server_by_its_version() -> None:
    view = SamplingView(servers=[ServerView("a/pg", "host=/a", 15, 1), ServerView("b/pg", "host=/b", 18, 2)])
    old, new = DATABASE.sources(view)
    assert (old.entity, old.kind, old.where, old.every) == ("server:a/pg", "sql", "host=/a", 1)
    assert "pg_stat_bgwriter" in old.statement and "pg_stat_checkpointer" not in old.statement
    assert "pg_stat_checkpointer" in new.statement and "pg_stat_bgwriter" not in new.statement
    assert "pg_stat_wal" not in database_statement(13)


def test_what_the_server_cannot_say_is_absent() -> None:
    row: list[object] = [str(i) for i in range(len(DATABASE.metrics))]
    row[3] = None
    ((entity, values),) = DATABASE.parse(json.dumps([row]), SOURCE)
    assert entity == "server:a/pg"
    assert len(values) == len(DATABASE.metrics) - 1 and "db.blks_hit" not in values
    assert values["checkpoint.sync_time"] == pytest.approx(0.014)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "[]",
        "[[]]",
        "[[1, 2]]",
        "{}",
        "3",
        json.dumps([["x"] * 20]),
        json.dumps([["nan"] * 20]),
        json.dumps([[10**400] * 20]),
        json.dumps([[True] * 20]),
        "[[[1]]]",
    ],
)
def test_refuses_other_answers(raw: str) -> None:
    with pytest.raises(ValueError):
        list(DATABASE.parse(raw, SOURCE))


# ---- I/O


def test_reads_what_a_server_answers(parsed) -> None:
    values = parsed("pg_io", "sql-pg_io-18.json", entity="server:a/pg")["server:a/pg"]
    assert values["io.reads"] == 1286
    assert values["io.client.reads"] == 790
    assert set(values) == {metric.name for metric in PG_IO.metrics}


def test_servers_from_16_on_every_fifth_tick() -> None:
    view = SamplingView(servers=[ServerView(f"s{major}/pg", f"host=/{major}", major, 1) for major in (15, 16, 18)])
    assert [(source.entity, source.every) for source in PG_IO.sources(view)] == [("server:s16/pg", 5), ("server:s18/pg", 5)]


def test_refuses_other_answers_of_pg_io() -> None:
    with pytest.raises(ValueError, match="10 columns, not 1"):
        list(PG_IO.parse("[[1]]", SampleSource("pg_io", "server:a/pg", "sql", "x")))


# ---- WAL


def test_every_version_has_as_many_columns_as_there_are_metrics() -> None:
    source = SampleSource("pg_wal", "server:a/pg", "sql", "x")
    (reading,) = PG_WAL.parse('[["5", "4", null, 0, 8192, 16384]]', source)
    assert reading == (
        "server:a/pg",
        {"wal.writes": 5, "wal.syncs": 4, "wal.buffers_full": 0, "io.read_bytes": 8192, "io.write_bytes": 16384},
    )
    with pytest.raises(ValueError, match="6 columns, not 1"):
        list(PG_WAL.parse("[[1]]", source))


def test_asks_each_version_what_it_has() -> None:
    assert "pg_stat_io" not in wal_statement(15)
    assert "op_bytes" in wal_statement(16) and "wal_sync" in wal_statement(17)
    assert "object = 'wal'" in wal_statement(18) and "op_bytes" not in wal_statement(18)
    view = SamplingView(servers=[ServerView(f"s{major}/pg", "x", major, 1) for major in (15, 18)])
    assert [source.every for source in PG_WAL.sources(view)] == [5, 5]


# ---- pg_balloon


EXTENSION = Path(__file__).parents[2] / "extension/pg_balloon/pg_balloon--1.0.sql"


def test_asks_only_servers_that_have_it() -> None:
    view = SamplingView(servers=[ServerView("a/pg", "host=/a", 18, 1, balloon=True), ServerView("b/pg", "host=/b", 18, 2)])
    assert [(source.entity, source.where) for source in PG_BALLOON.sources(view)] == [("server:a/pg", "host=/a")]


def test_reads_one_row() -> None:
    row = ["268435456", "100663296", "150000000", "0", "90000000", "33554432", "241591910", None, "7", "3"]
    ((entity, values),) = PG_BALLOON.parse(json.dumps([row]), SampleSource("balloon", "server:a/pg", "sql", "host=/a"))
    assert entity == "server:a/pg"
    assert values["balloon.shared_buffers"] == 268435456
    assert values["balloon.bytes"] == 100663296
    assert values["balloon.deflations"] == 3
    assert "balloon.available" not in values, "a value that the server cannot determine is absent"


def test_one_column_for_each_metric() -> None:
    with pytest.raises(ValueError, match="columns"):
        list(PG_BALLOON.parse("[[1, 2]]", SampleSource("balloon", "server:a/pg", "sql", "host=/a")))


def test_the_extension_has_every_column() -> None:
    columns = re.findall(r"\b(?:c\.)?(\w+_bytes|inflations|deflations)\b", BALLOON_STATEMENT)
    declared = set(re.findall(r"OUT (\w+)", EXTENSION.read_text()))
    assert len(columns) == len(PG_BALLOON.metrics)
    assert set(columns) <= declared


# ---- checkpoints in the log


AT = datetime(2026, 1, 2, 3, 4, 0, tzinfo=UTC).timestamp()


def log(second: float, text: str, zone: str = "UTC") -> str:
    return f"2026-01-02 03:04:{second:06.3f} {zone} [77] LOG:  {text}"


START = "checkpoint starting: time"
DONE = (
    "checkpoint complete: wrote 930 buffers (0.7%); 0 WAL file(s) added, 1 removed, 2 recycled; write=5.200 s, sync=0.800 s, "
    "total=6.010 s; sync files=30, longest=0.500 s, average=0.027 s; distance=32768 kB, estimate=40000 kB"
)


def test_reads_a_real_log(text) -> None:
    found = checkpoints(text("checkpoint-15.log").splitlines(), "db01/pg", 0.0, 4e9)
    assert [(one.cause, one.buffers, one.write_seconds, one.sync_seconds) for one in found] == [
        ("immediate force wait", 468, 0.021, 0.062),
        ("shutdown immediate", 0, 0.008, 0.001),
    ]
    assert all(one.end is not None and one.end > one.start for one in found)


def test_reads_what_18_adds() -> None:
    told = DONE.replace("wrote 930 buffers (0.7%);", "wrote 930 buffers (0.7%), wrote 3 SLRU buffers;")
    (found,) = checkpoints([log(1, START), log(7.01, told)], "a/pg", AT, AT + 30)
    assert (found.buffers, found.sync_seconds) == (930, 0.8)


def test_takes_those_of_the_window_with_times_from_its_start() -> None:
    lines = [log(1, START), log(7.01, DONE), log(31, START), log(37.01, DONE)]
    (found,) = checkpoints(lines, "a/pg", AT + 5, AT + 30)
    assert (found.start, found.end) == (pytest.approx(-4), pytest.approx(2.01))
    assert (found.buffers, found.write_seconds, found.sync_seconds, found.distance_bytes) == (930, 5.2, 0.8, 32768 * 1024)


def test_one_that_has_not_ended_is_open() -> None:
    (found,) = checkpoints([log(10, START)], "a/pg", AT, AT + 30)
    assert found.end is None and found.cause == "time"


def test_one_that_a_stop_cut_off_ended_before_the_next_one() -> None:
    lines = [log(1, START), log(12, START), log(18.01, DONE)]
    assert [one.end for one in checkpoints(lines, "a/pg", AT + 5, AT + 30)] == pytest.approx([7, 13.01])
    (found,) = checkpoints(lines, "a/pg", AT + 15, AT + 30)
    assert found.start == pytest.approx(-3)


def test_one_whose_start_is_not_in_the_log_began_as_long_before_as_it_says() -> None:
    (found,) = checkpoints([log(7.01, DONE)], "a/pg", AT, AT + 30)
    assert found.start == pytest.approx(1.0)


def test_lines_in_another_time_zone_are_left_out() -> None:
    assert checkpoints([log(1, START, "CET"), log(7, DONE, "CET")], "a/pg", AT, AT + 30) == []


# ---- waits and replication


def waiting_server(number: int) -> ServerView:
    return ServerView(f"c{number}/pg", f"host=h{number}", 17, 0, waits=True)


def test_waits_are_sampled_of_external_servers_and_less_often_of_many() -> None:
    assert WAITS.sources(SamplingView(servers=[ServerView("c/pg", "host=h", 17, 1)])) == [], "of our own, the kernel shows more"
    assert [source.times for source in WAITS.sources(SamplingView(servers=[waiting_server(1)]))] == [10]
    assert {source.times for source in WAITS.sources(SamplingView(servers=[waiting_server(n) for n in range(40)]))} == {1}


def test_waits_of_private_servers_are_sampled_once_a_second_for_an_objective() -> None:
    view = SamplingView(servers=[ServerView("c/pg", "host=h", 17, 1), waiting_server(1)], waits=True)
    (source,) = OBJECTIVE_WAITS.sources(view)
    assert (source.entity, source.times, source.every) == ("server:c/pg", 1, 1)
    assert OBJECTIVE_WAITS.sources(replace(view, waits=False)) == []
    ((entity, values),) = OBJECTIVE_WAITS.parse('[["2","1","0","0","0","0","0","3","4"]]', source)
    assert wait_series([(10.2, source.sampler, entity, values)], 10.0, 13.0) == {}, "only of external servers"


def test_waits_by_class_and_second() -> None:
    (source,) = WAITS.sources(SamplingView(servers=[waiting_server(1)]))
    (entity, values), *_ = WAITS.parse('[["2","1","0","0","0","0","0","3","4"]]', source)
    assert entity == "server:c1/pg" and values["waits.cpu"] == 2 and values["waits.lock"] == 1 and values["waits.hidden"] == 4
    others = dict.fromkeys(values, 0.0) | {"waits.lock": 3.0}
    readings = [
        (10.2, "waits", entity, values),
        (10.6, "waits", entity, others),
        (12.5, "waits", entity, others),
        (13.5, "waits", entity, values),
    ]
    series = wait_series(readings, 10.0, 13.4)["c1/pg"]
    assert series["cpu"] == [1, 1, 0] and series["lock"] == [2, 2, 3], "the second without a sample repeats the one before"
    assert wait_series([], 0, 5) == {}


def test_replication_of_a_server_without_replicas() -> None:
    (source,) = REPLICATION.sources(SamplingView(servers=[waiting_server(1)]))
    assert dict(REPLICATION.parse('[["0",null,null]]', source)) == {"server:c1/pg": {"replication.standbys": 0}}
