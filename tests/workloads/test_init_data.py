"""Which files an --init file reads, and that a change of one is a change of the database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.model.deployment import Database, InitData
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.workloads import init_data
from pgherd.workloads.script import ScriptWorkload

NODE = LocalNode()
TEXT = "CREATE TABLE t (a int);\n\\copy t FROM 'it''s data.csv'\n\\copy t FROM PROGRAM 'zcat more.csv.gz'\n\\copy t FROM missing.csv\n"


@pytest.fixture
def init(tmp_path: Path) -> Path:
    (tmp_path / "it's data.csv").write_text("1\n")
    (tmp_path / "more.csv.gz").write_bytes(b"2")
    (tmp_path / "t").mkdir()
    os.mkfifo(tmp_path / "zcat")
    (tmp_path / "init.sql").write_text(TEXT)
    return tmp_path / "init.sql"


def find(init: Path) -> InitData:
    return init_data.find(NODE, str(init), init.read_text())


def test_files_that_are_there_are_found_and_nothing_else(init: Path) -> None:
    found = find(init)
    assert found.files == ("it's data.csv", "more.csv.gz") and found.directory == str(init.parent)
    init.write_text("\\! sort init.sql\n")
    assert find(init) == InitData(directory=str(init.parent)), "the file itself is known anyway"


def test_another_content_is_another_hash_and_the_place_does_not_matter(init: Path, tmp_path: Path) -> None:
    before = find(init)
    (init.parent / "more.csv.gz").write_bytes(b"3")
    assert find(init).digest != before.digest
    (init.parent / "more.csv.gz").write_bytes(b"2")
    assert find(init).digest == before.digest
    other = tmp_path / "other"
    other.mkdir()
    for name in (*before.files, "init.sql"):
        (other / name).write_bytes((init.parent / name).read_bytes())
    assert find(other / "init.sql").digest == before.digest


def test_contents_that_changed_places_are_another_database(init: Path) -> None:
    before = find(init)
    (init.parent / "it's data.csv").write_bytes(b"2")
    (init.parent / "more.csv.gz").write_text("1\n")
    assert find(init).digest != before.digest


def test_a_database_is_known_by_its_data_too(init: Path) -> None:
    database = Database(workload="script", init=str(init))

    def identity(one: Database = database) -> str:
        return ScriptWorkload().filling(NODE, one).identity

    before = identity()
    kept = database.model_copy(update={"init_data": find(init)})
    (init.parent / "more.csv.gz").write_bytes(b"changed")
    assert identity() != before
    assert identity(kept) == before, "a run goes on with what it began with"


def test_what_has_changed_meanwhile_is_not_loaded(init: Path) -> None:
    found = find(init)
    init_data.insist_unchanged(NODE, str(init), found)
    (init.parent / "more.csv.gz").write_bytes(b"changed")
    with pytest.raises(UsageError, match=r"it's data\.csv, more\.csv\.gz in .* have changed since this run was prepared; put them back"):
        init_data.insist_unchanged(NODE, str(init), found)
    (init.parent / "more.csv.gz").unlink()
    with pytest.raises(UsageError, match=r"^more\.csv\.gz, which --init .* reads, is not in .* any more"):
        init_data.insist_unchanged(NODE, str(init), found)
    init_data.insist_unchanged(NODE, str(init), InitData(directory="/nowhere"))


def test_what_the_kernel_shows_and_what_is_written_is_no_data(init: Path) -> None:
    (init.parent / "log.txt").write_text("of the last time\n")
    init.write_text("\\o log.txt\n\\set up `cat /proc/uptime /sys/kernel/profiling /dev/null`\nCOPY t TO '/proc/self/comm';\n")
    assert find(init) == InitData(directory=str(init.parent))
