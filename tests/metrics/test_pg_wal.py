import pytest

from pgherd.metrics.pg_wal import SAMPLER, statement
from pgherd.metrics.sampler import ServerView, View
from pgherd.node.protocol import Source


def test_every_version_has_as_many_columns_as_there_are_metrics() -> None:
    source = Source("pg_wal", "server:a/pg", "sql", "x")
    (reading,) = SAMPLER.parse('[["5", "4", null, 0, 8192, 16384]]', source)
    assert reading == (
        "server:a/pg",
        {"wal.writes": 5, "wal.syncs": 4, "wal.buffers_full": 0, "io.read_bytes": 8192, "io.write_bytes": 16384},
    )
    with pytest.raises(ValueError, match="6 columns, not 1"):
        list(SAMPLER.parse("[[1]]", source))


def test_asks_each_version_what_it_has() -> None:
    assert "pg_stat_io" not in statement(15)
    assert "op_bytes" in statement(16) and "wal_sync" in statement(17)
    assert "object = 'wal'" in statement(18) and "op_bytes" not in statement(18)
    view = View(servers=[ServerView(f"s{major}/pg", "x", major, 1) for major in (15, 18)])
    assert [source.every for source in SAMPLER.sources(view)] == [5, 5]
