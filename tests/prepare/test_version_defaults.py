import pytest

from pgherd.host import paths
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.postgres.version_differences import ServerDefaults
from pgherd.prepare import servers as module
from pgherd.prepare.servers import differences

NODE = LocalNode()
OLD, NEW, TWIN = (
    Installation(bin_, version, int(version[:2]), "system") for bin_, version in (("/a", "15.1"), ("/b", "18.1"), ("/c", "18.1"))
)


@pytest.fixture
def queries(own_directories, monkeypatch):
    """No server is started; of whom it was asked is noted."""
    collected = []

    def of(node, installation, *, account, directory, socket_dir, checksums):
        assert NODE.exists(directory) and NODE.exists(socket_dir) and checksums is True
        collected.append(installation.bin)
        return ServerDefaults(installation.version, {"jit": "on" if installation.major < 18 else "off"}, {})

    monkeypatch.setattr(module.version_differences, "read_from_server", of)
    monkeypatch.setattr(module.installations, "reachable_copy", lambda node, item, account, cache: item)
    return collected


def test_each_installation_is_asked_once_and_nothing_stays(queries):
    result = differences(NODE, OLD, {"new": NEW, "again": OLD, "other new": TWIN}, account=None, checksums=True)
    assert queries == ["/a", "/b", "/c"]
    assert [(row.name, row.one, row.other) for row in result["new"]] == [("jit", "on", "off")] and result["new"] == result["other new"]
    assert result["again"] == ()
    assert not list((paths.state_dir() / "journal").glob("[a-z]*")) and not list((paths.cache_dir() / "work").iterdir())


def test_what_differs_is_one_sentence():
    assert module.describe_defaults({}) == []
    assert module.describe_defaults({"jit": {"old": "on", "new": "off"}, "built": {"old": "gcc 12", "new": "gcc 14"}}) == [
        "Defaults that differ between versions: jit is on in old, off in new; built is gcc 12 in old, gcc 14 in new."
    ]


def test_what_is_set_on_all_does_not_count(queries):
    assert differences(NODE, OLD, {"new": NEW}, account=None, checksums=True, settings=["jit"]) == {"new": ()}


def test_one_installation_alone_is_not_asked(queries):
    assert differences(NODE, OLD, {"x": OLD}, account=None, checksums=True) == {"x": ()} and not queries
