from __future__ import annotations

from types import SimpleNamespace

import pytest

from pgherd.model.deployment import Database
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.local import LocalNode
from pgherd.workloads import client_options
from pgherd.workloads.registry import NAMES, find, loaders


def test_every_name_is_found_under_itself() -> None:
    for name in NAMES:
        assert find(name).name == name


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no workload 'tpcc'; .*pgbench, orders, random-block, realistic, script"):
        find("tpcc")


def test_the_users_transactions_belong_to_script() -> None:
    scripts = [Script(source="a.sql", weight=3)]
    assert list(find("script", scripts).scripts()) == scripts


def test_fillings_of_a_server() -> None:
    result = loaders(LocalNode(), [Database(name="a", scale=1), Database(name="b", workload="select-only", scale=2)], {})
    assert [(loader.database, loader.identity) for loader in result] == [("a", "pgbench-1"), ("b", "pgbench-2")]
    with pytest.raises(UsageError, match="no workload"):
        loaders(LocalNode(), [Database(workload="nope")], {})


def test_schemas_of_one_database_have_a_loader_each() -> None:
    schemas = [Database(name=name, schema_of="bench", scale=3) for name in ("db1", "db2")]
    result = loaders(LocalNode(), schemas, {})
    assert [(loader.database, loader.identity) for loader in result] == [("bench", "pgbench-3@db1"), ("bench", "pgbench-3@db2")]
    (plain,) = loaders(LocalNode(), [Database(name="bench", scale=3)], {})
    assert [(loader.size_estimate, loader.settings) for loader in result] == [(plain.size_estimate, plain.settings)] * 2


def test_client_options_name_the_socket() -> None:
    target = SimpleNamespace(socket_dir="/s", port=5433, user="postgres")
    assert client_options(target) == ["--host", "/s", "--port", "5433", "--username", "postgres"]
