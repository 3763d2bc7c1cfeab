import json

import pytest

from pgherd.metrics.database import METRICS, SAMPLER, statement
from pgherd.metrics.sampler import ServerView, View
from pgherd.node.protocol import Source

SOURCE = Source("database", "server:a/pg", "sql", "host=/s")


@pytest.mark.parametrize("version", ["15", "18"])
def test_reads_what_servers_answer(parsed, version: str) -> None:
    values = parsed("database", f"sql-database-{version}.json", entity="server:a/pg")["server:a/pg"]
    assert set(values) == {metric.name for metric in METRICS}
    assert values["db.blks_hit"] > 1000 * values["db.blks_read"]
    assert 269 < values["ckpt.write_time"] < 270
    assert values["wal.bytes"] > 40e6
    assert values["vacuum.workers"] == 0


def test_one_statement_per_server_by_its_version() -> None:
    view = View(servers=[ServerView("a/pg", "host=/a", 15, 1), ServerView("b/pg", "host=/b", 18, 2)])
    old, new = SAMPLER.sources(view)
    assert (old.entity, old.kind, old.where, old.every) == ("server:a/pg", "sql", "host=/a", 1)
    assert "pg_stat_bgwriter" in old.statement and "pg_stat_checkpointer" not in old.statement
    assert "pg_stat_checkpointer" in new.statement and "pg_stat_bgwriter" not in new.statement
    assert "pg_stat_wal" not in statement(13)


def test_what_the_server_cannot_say_is_absent() -> None:
    row: list[object] = [str(i) for i in range(len(METRICS))]
    row[3] = None
    ((entity, values),) = SAMPLER.parse(json.dumps([row]), SOURCE)
    assert entity == "server:a/pg"
    assert len(values) == len(METRICS) - 1 and "db.blks_hit" not in values
    assert values["ckpt.sync_time"] == pytest.approx(0.014)


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
        list(SAMPLER.parse(raw, SOURCE))
