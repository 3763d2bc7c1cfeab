"""Relations: read file by file, and spread over tablespaces. tests/it/test_disk.py uses a real server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.postgres.instance import WRITABLE
from pgherd.postgres.relation_files import LIST, RELATIONS, Relation, Relations, TablespaceDirs, create, spread

GB = 2**30


class Server:
    """Server that answers the four statements and records reads."""

    def __init__(self, rows, file=GB, may=True, data=b"x"):
        self.rows, self.file, self.may, self.data = rows, file, may, data
        self.read = []

    def __call__(self, statement, parameters):
        if statement == LIST:
            return self.rows
        if "segment_size" in statement:
            return [(self.file,)]
        if "has_function_privilege" in statement:
            return [(self.may,)]
        self.read.append(tuple(parameters))
        return [(self.data,)]


def test_what_holds_nothing_or_has_no_file_is_left_out():
    relations = Relations(Server([("public.a", "base/5/16384", 8192), ("public.empty", "base/5/16385", 0), ("public.part", None, 0)]))
    assert relations.all == [Relation("public.a", "base/5/16384", 8192)]


@pytest.mark.parametrize(
    ("offset", "path", "within"),
    [(0, "base/5/1", 0), (GB - 2**20, "base/5/1", GB - 2**20), (GB, "base/5/1.1", 0), (5 * GB + 2**20, "base/5/1.5", 2**20)],
)
def test_a_large_relation_is_read_from_its_later_files(offset, path, within):
    server = Server([("public.a", "base/5/1", 6 * GB)])
    relations = Relations(server)
    assert relations.read(relations.all[0], offset, 2**20) == b"x"
    assert server.read == [(path, within, 2**20)]


def test_what_is_gone_meanwhile_is_empty():
    relations = Relations(Server([("public.a", "base/5/1", 8192)], data=None))
    assert relations.read(relations.all[0], 0, 8192) == b""


def test_whether_it_may_read_is_asked_of_the_server():
    assert not Relations(Server([], may=False)).readable


class PrivateServer:
    """Server that records statements. ``relations`` are those of each database."""

    def __init__(self, relations=()):
        self.relations, self.statements = list(relations), []

    def sql(self, statement, parameters=(), *, database="postgres"):
        if statement == RELATIONS:
            return self.relations
        self.statements.append((database, statement))
        return []

    def reload(self):
        self.statements.append(("", "reload"))

    def checkpoint(self):
        self.statements.append(("", "checkpoint"))


def test_temporary_files_go_to_their_tablespace():
    server = PrivateServer()
    create(server, ["bench"], TablespaceDirs(temp="/mnt/it's"))
    assert server.statements == [
        ("postgres", WRITABLE),
        ("postgres", "CREATE TABLESPACE \"pgherd_temp\" LOCATION '/mnt/it''s'"),
        ("postgres", "ALTER SYSTEM SET temp_tablespaces = 'pgherd_temp'"),
        ("", "reload"),
    ]


def test_relations_are_moved_one_by_one_and_written():
    server = PrivateServer([("public", "big", "r", 100), ("public", 'odd"name', "i", 60), ("s", "view", "m", 30)])
    create(server, ["bench"], TablespaceDirs(data=("/a", "/b")))
    moved = [statement for database, statement in server.statements if database == "bench"]
    assert moved == [
        WRITABLE,
        'ALTER TABLE "public"."big" SET TABLESPACE "pgherd_space_0"',
        'ALTER INDEX "public"."odd""name" SET TABLESPACE "pgherd_space_1"',
        'ALTER MATERIALIZED VIEW "s"."view" SET TABLESPACE "pgherd_space_1"',
    ]
    assert server.statements[-1] == ("", "checkpoint")


def test_nothing_is_done_without_spaces():
    server = PrivateServer()
    create(server, ["bench"], TablespaceDirs())
    assert server.statements == []


@pytest.mark.parametrize(
    ("sizes", "places", "expected"),
    [([100, 60, 30], 2, [0, 1, 1]), ([5, 5, 5, 5], 2, [0, 1, 0, 1]), ([7], 3, [0]), ([], 2, [])],
)
def test_known_spreads(sizes, places, expected):
    assert spread(sizes, places) == expected


@given(st.lists(st.integers(1, 10**12), max_size=40), st.integers(1, 8))
def test_no_place_has_more_than_its_share_and_the_largest(sizes, places):
    assigned = spread(sorted(sizes, reverse=True), places)
    filled = [sum(s for s, at in zip(sorted(sizes, reverse=True), assigned, strict=True) if at == position) for position in range(places)]
    assert sum(filled) == sum(sizes)
    assert max(filled) <= sum(sizes) / places + max(sizes, default=0)
