import json

import pytest

from pgherd.metrics.pg_stat import DATABASE, PG_IO, PG_WAL, database_statement, wal_statement
from pgherd.metrics.sampler import SamplingView, ServerView
from pgherd.node.protocol import SampleSource

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
