import pytest

from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.postgres import wal

NODE = LocalNode()


def test_the_log_lies_elsewhere_and_is_found_where_it_was(tmp_path):
    data, there = tmp_path / "data", tmp_path / "it's there"
    (data / "pg_wal" / "archive_status").mkdir(parents=True)
    (data / "pg_wal" / "000000010000000000000001").write_bytes(b"segment")
    (data / "pg_wal").chmod(0o700)
    there.mkdir()
    wal.move(NODE, str(data), str(there))
    assert (data / "pg_wal").readlink() == there / "pg_wal"
    assert (data / "pg_wal" / "000000010000000000000001").read_bytes() == b"segment"
    assert (there / "pg_wal").stat().st_mode & 0o777 == 0o700 and not (there / "pg_wal").is_symlink()


def test_what_cannot_be_moved_is_said_with_the_reason(tmp_path):
    (tmp_path / "data" / "pg_wal").mkdir(parents=True)
    with pytest.raises(TrialError, match=f"the WAL of {tmp_path}/data cannot be moved to {tmp_path}/nowhere: .*No such file"):
        wal.move(NODE, str(tmp_path / "data"), str(tmp_path / "nowhere"))
    (tmp_path / "there" / "pg_wal").mkdir(parents=True)
    (tmp_path / "there" / "pg_wal" / "of another").touch()
    with pytest.raises(TrialError, match="not empty"):
        wal.move(NODE, str(tmp_path / "data"), str(tmp_path / "there"))
    assert (tmp_path / "there" / "pg_wal" / "of another").exists()
