import psycopg
import pytest

from pgherd.node.local import LocalNode
from pgherd.postgres import advice_facts

SETTINGS = [
    ("shared_buffers", "128MB", "16384", "8kB", None),
    ("max_wal_size", "1GB", "1024", "MB", None),
    ("fsync", "on", "on", None, None),
    ("wal_segment_size", "16MB", "16777216", "B", None),
    ("shared_memory_size_in_huge_pages", "71", "71", None, None),
    ("huge_pages_status", "off", "off", None, ["off", "on", "unknown"]),
    ("wal_compression", "off", "off", None, ["pglz", "on", "off"]),
    ("data_directory", "/nonexistent/data", "/nonexistent/data", None, None),
]


class Server:
    """Server of a major version that rejects statements with one of the parts ``refused``."""

    def __init__(self, major=18, refused=()):
        self.major, self.refused, self.closed = major, refused, False

    def sql(self, statement, parameters=()):
        if any(part in statement for part in self.refused):
            raise psycopg.errors.InsufficientPrivilege("no")
        answers = {
            "FROM pg_settings": SETTINGS,
            "SHOW server_version": [(f"{self.major}.3 (Debian)",)],
            "pg_stat_checkpointer": [(90, 10)],
            "pg_stat_bgwriter": [(9, 1)],
            "pg_stat_wal": [(1000, 200)],
            "pg_database": [("app", 5000)],
        }
        return next(rows for part, rows in answers.items() if part in statement)

    def disconnect(self):
        self.closed = True


@pytest.fixture
def look(monkeypatch):
    def make(*, local=True, **options):
        server = Server(**options)
        monkeypatch.setattr(advice_facts, "ExternalServer", lambda *args, **named: server)
        facts = advice_facts.read_server_facts(LocalNode(), "host=h", "/nowhere", local=local)
        assert server.closed
        return facts

    return make


def test_settings_sizes_and_counts_are_read(look):
    facts = look()
    assert (facts.version, facts.major, facts.local) == ("18.3", 18, True)
    assert facts.bytes_["shared_buffers"] == 128 * 2**20 and facts.bytes_["max_wal_size"] == 2**30
    assert (facts.timed, facts.requested, facts.wal_records, facts.full_pages) == (90, 10, 1000, 200)
    assert facts.wal_compressions == ("pglz", "on", "off")
    assert facts.huge_pages_needed == 71 and facts.huge_pages_status == "off" and facts.databases == {"app": 5000}
    assert facts.data == () and "data_directory" not in facts.settings, "an invisible directory has no device"


def test_older_versions_count_checkpoints_elsewhere(look):
    assert (look(major=15).timed, look(major=16).requested) == (9, 1)


def test_what_this_user_may_not_see_stays_empty(look):
    facts = look(refused=("pg_stat_wal", "pg_stat_checkpointer"))
    assert facts.timed is None and facts.wal_records is None and facts.databases == {"app": 5000}


def test_servers_beside_it_are_counted(look, monkeypatch):
    monkeypatch.setattr(advice_facts.processes, "topmost", lambda node, names: [7, 9])
    assert look().servers_here == 2
    monkeypatch.setattr(advice_facts.processes, "topmost", lambda node, names: [])
    assert look().servers_here is None, "not even the server, which is in another container"


def test_of_a_server_elsewhere_no_disk_of_ours_is_named(look):
    facts = look(local=False)
    assert facts.servers_here is None
    assert facts.local is False and (facts.data, facts.wal, facts.system) == ((), (), ())
