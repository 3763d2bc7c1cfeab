import json
import re
from pathlib import Path

import pytest

from pgherd.metrics.pg_balloon import SAMPLER, STATEMENT
from pgherd.metrics.sampler import SamplingView, ServerView
from pgherd.node.protocol import SampleSource

EXTENSION = Path(__file__).parents[2] / "extension/pg_balloon/pg_balloon--1.0.sql"


def test_asks_only_servers_that_have_it() -> None:
    view = SamplingView(servers=[ServerView("a/pg", "host=/a", 18, 1, balloon=True), ServerView("b/pg", "host=/b", 18, 2)])
    assert [(source.entity, source.where) for source in SAMPLER.sources(view)] == [("server:a/pg", "host=/a")]


def test_reads_one_row() -> None:
    row = ["268435456", "100663296", "150000000", "0", "90000000", "33554432", "241591910", None, "7", "3"]
    ((entity, values),) = SAMPLER.parse(json.dumps([row]), SampleSource("balloon", "server:a/pg", "sql", "host=/a"))
    assert entity == "server:a/pg"
    assert values["balloon.shared_buffers"] == 268435456
    assert values["balloon.bytes"] == 100663296
    assert values["balloon.deflations"] == 3
    assert "balloon.available" not in values, "a value that the server cannot determine is absent"


def test_one_column_for_each_metric() -> None:
    with pytest.raises(ValueError, match="columns"):
        list(SAMPLER.parse("[[1, 2]]", SampleSource("balloon", "server:a/pg", "sql", "host=/a")))


def test_the_extension_has_every_column() -> None:
    columns = re.findall(r"\b(?:c\.)?(\w+_bytes|inflations|deflations)\b", STATEMENT)
    declared = set(re.findall(r"OUT (\w+)", EXTENSION.read_text()))
    assert len(columns) == len(SAMPLER.metrics)
    assert set(columns) <= declared
