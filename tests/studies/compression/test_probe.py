from types import SimpleNamespace

import pytest

from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.runner.observer import RunObserver
from pgherd.studies.compression import probe
from pgherd.studies.compression.options import CompressionOptions, Source
from pgherd.studies.compression.readings import relations
from pgherd.studies.compression.study import STUDY

for library in ("lz4", "cryptography"):
    pytest.importorskip(library)


def trials(directory):
    source = Source(name="directory", directory=str(directory))
    return STUDY.propose(CompressionOptions(sources=(source,), codecs=("lz4",), blocks=(8192, 32768)), []).trials


@pytest.fixture
def session(tmp_path):
    return SimpleNamespace(node=LocalNode(), account=None, work=tmp_path)


def test_a_directory_is_read_and_compressed_block_by_block(session, tmp_path):
    (tmp_path / "text").write_bytes(b"all work and no play\n" * 100_000)
    plain, encrypted = (relations(probe.measure(session, {}, trial, RunObserver())) for trial in trials(tmp_path))
    one = plain["files at the top"]
    assert one.size == 2_100_000 and one.segments == 3 and sum(one.raw.values()) == one.size
    assert sum(one.compressed["lz4", 32768].values()) < one.size / 20 < one.size
    assert sum(one.compressed["lz4", 8192].values()) > sum(one.compressed["lz4", 32768].values())
    assert all(size % 4096 == 0 for size in one.stored["lz4", 8192].values())
    same = encrypted["files at the top"]
    assert same.raw == one.raw and sum(same.compressed["lz4", 8192].values()) == one.size, "the same segments, and nothing to gain"


def test_an_empty_directory_fails_the_trial(session, tmp_path):
    with pytest.raises(TrialError, match="holds no file"):
        probe.measure(session, {}, trials(tmp_path)[0], RunObserver())


def test_a_database_that_may_not_be_read_says_what_to_grant(monkeypatch):
    closed = SimpleNamespace(all=[object()], readable=False)
    monkeypatch.setattr(probe, "Relations", lambda query: closed)
    with pytest.raises(TrialError, match="GRANT EXECUTE ON FUNCTION pg_read_binary_file"):
        probe._of_database(None, "host=h")
    closed.all = []
    with pytest.raises(TrialError, match="holds no table"):
        probe._of_database(None, "host=h")
