import pytest

from pgherd.postgres.relations import LIST, Relation, Relations

GB = 2**30


class Server:
    """Answers the four statements; remembers what was read."""

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
    found = Relations(Server([("public.a", "base/5/16384", 8192), ("public.empty", "base/5/16385", 0), ("public.part", None, 0)]))
    assert found.all == [Relation("public.a", "base/5/16384", 8192)]


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
