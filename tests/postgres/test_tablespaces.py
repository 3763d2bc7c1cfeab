"""Tablespaces: the statements, and how relations are spread. A real server: tests/it/test_disk.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.postgres.tablespaces import RELATIONS, Spaces, create, spread


class Server:
    """Notes statements; ``relations`` are what each database holds."""

    def __init__(self, relations=()):
        self.relations, self.said = list(relations), []

    def sql(self, statement, parameters=(), *, database="postgres"):
        if statement == RELATIONS:
            return self.relations
        self.said.append((database, statement))
        return []

    def reload(self):
        self.said.append(("", "reload"))

    def checkpoint(self):
        self.said.append(("", "checkpoint"))


def test_temporary_files_go_to_their_tablespace():
    server = Server()
    create(server, ["bench"], Spaces(temp="/mnt/it's"))
    assert server.said == [
        ("postgres", "CREATE TABLESPACE \"pgherd_temp\" LOCATION '/mnt/it''s'"),
        ("postgres", "ALTER SYSTEM SET temp_tablespaces = 'pgherd_temp'"),
        ("", "reload"),
    ]


def test_relations_are_moved_one_by_one_and_written():
    server = Server([("public", "big", "r", 100), ("public", 'odd"name', "i", 60), ("s", "view", "m", 30)])
    create(server, ["bench"], Spaces(data=("/a", "/b")))
    moved = [statement for database, statement in server.said if database == "bench"]
    assert moved == [
        'ALTER TABLE "public"."big" SET TABLESPACE "pgherd_space_0"',
        'ALTER INDEX "public"."odd""name" SET TABLESPACE "pgherd_space_1"',
        'ALTER MATERIALIZED VIEW "s"."view" SET TABLESPACE "pgherd_space_1"',
    ]
    assert server.said[-1] == ("", "checkpoint")


def test_nothing_is_done_without_spaces():
    server = Server()
    create(server, ["bench"], Spaces())
    assert server.said == []


@pytest.mark.parametrize(
    ("sizes", "places", "wanted"),
    [([100, 60, 30], 2, [0, 1, 1]), ([5, 5, 5, 5], 2, [0, 1, 0, 1]), ([7], 3, [0]), ([], 2, [])],
)
def test_known_spreads(sizes, places, wanted):
    assert spread(sizes, places) == wanted


@given(st.lists(st.integers(1, 10**12), max_size=40), st.integers(1, 8))
def test_no_place_has_more_than_its_share_and_the_largest(sizes, places):
    found = spread(sorted(sizes, reverse=True), places)
    filled = [sum(s for s, at in zip(sorted(sizes, reverse=True), found, strict=True) if at == place) for place in range(places)]
    assert sum(filled) == sum(sizes)
    assert max(filled) <= sum(sizes) / places + max(sizes, default=0)
