import pytest

from pgherd.metrics.pg_io import SAMPLER
from pgherd.metrics.sampler import ServerView, View
from pgherd.node.protocol import Source


def test_reads_what_a_server_answers(parsed) -> None:
    values = parsed("pg_io", "sql-pg_io-18.json", entity="server:a/pg")["server:a/pg"]
    assert values["io.reads"] == 1286
    assert values["io.client.reads"] == 790
    assert set(values) == {metric.name for metric in SAMPLER.metrics}


def test_servers_from_16_on_every_fifth_tick() -> None:
    view = View(servers=[ServerView(f"s{major}/pg", f"host=/{major}", major, 1) for major in (15, 16, 18)])
    assert [(source.entity, source.every) for source in SAMPLER.sources(view)] == [("server:s16/pg", 5), ("server:s18/pg", 5)]


def test_refuses_other_answers() -> None:
    with pytest.raises(ValueError, match="10 columns, not 1"):
        list(SAMPLER.parse("[[1]]", Source("pg_io", "server:a/pg", "sql", "x")))
