import psycopg
import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy import server_views
from pgherd.runner.deploy.server_views import server_view

HOST = LocalNode()


@pytest.fixture(autouse=True)
def built(monkeypatch):
    """What pgherd has built of the extension: nothing, unless a test says so."""
    monkeypatch.setattr(server_views.balloon_build, "find_balloon", lambda node, installation, cache: None)


class Pretended:
    installation = Installation("/pg", "18.1", 18, "system")
    pid = 4711
    access = None

    def __init__(self, answer):
        self.answer, self.asked, self.node = answer, [], None

    def conninfo(self, database):
        return f"dbname={database}"

    def sql(self, statement):
        self.asked.append(statement)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [(self.answer,)]

    def disconnect(self, databases):
        self.asked.append("disconnect")


@pytest.mark.parametrize(
    ("settings", "answer", "there"),
    [
        ({"shared_preload_libraries": "pg_balloon"}, True, True),
        ({"shared_preload_libraries": "'$libdir/pg_balloon', auto_explain"}, False, False),
        ({"shared_preload_libraries": "pg_balloon"}, psycopg.OperationalError("gone"), False),
    ],
)
def test_a_server_that_loads_the_balloon_is_asked(settings, answer, there):
    instance = Pretended(answer)
    view = server_view(HOST, "a/pg", instance, settings, "/cache")
    assert (view.name, view.conninfo, view.major, view.pid, view.balloon) == ("a/pg", "dbname=postgres", 18, 4711, there)
    assert instance.asked[-1] == "disconnect"


def test_any_other_is_not_asked():
    instance = Pretended(True)
    assert not server_view(HOST, "a/pg", instance, {"shared_buffers": "1GB"}, "/cache").balloon
    assert instance.asked == []


def test_missing_functions_are_made(monkeypatch):
    instance, made = Pretended(False), []

    def create(node, installation, library, conninfo):
        made.append((node, library, conninfo))
        instance.answer = True

    monkeypatch.setattr(server_views.balloon_build, "find_balloon", lambda node, installation, cache: f"{cache}/lib")
    monkeypatch.setattr(server_views.balloon_build, "create_functions", create)
    assert server_view(HOST, "a/pg", instance, {"shared_preload_libraries": "pg_balloon"}, "/cache").balloon
    assert made == [(HOST, "/cache/lib", "dbname=postgres")], "from the host, even for a server in a guest"


def test_functions_that_cannot_be_made_are_done_without(monkeypatch):
    def create(*_):
        raise CapabilityError("no")

    monkeypatch.setattr(server_views.balloon_build, "find_balloon", lambda node, installation, cache: "lib")
    monkeypatch.setattr(server_views.balloon_build, "create_functions", create)
    assert not server_view(HOST, "a/pg", Pretended(False), {"shared_preload_libraries": "pg_balloon"}, "/cache").balloon


def test_a_guests_pid_means_nothing_on_the_host():
    instance = Pretended(False)
    instance.access = object()
    assert server_view(HOST, "a/pg", instance, {}, "/cache").pid == 0
