from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from pgherd.model.errors import TrialError
from pgherd.store.samples import read_samples
from pgherd.store.samples_subprocess import write_samples_apart

ROWS = [(float(t), "cpu", "host", {"cpu.user": t / 4}) for t in range(3)]


def test_the_same_is_written(tmp_path):
    write_samples_apart(tmp_path, iter(ROWS))
    assert read_samples(tmp_path, "cpu", "cpu.user") == [(t, "host", values["cpu.user"]) for t, _, _, values in ROWS]


def test_the_engine_stays_out_of_the_process_that_asks(tmp_path):
    program = "import pathlib, sys; from pgherd.store.samples_subprocess import *; "
    program += f"write_samples_apart(pathlib.Path({str(tmp_path)!r}), {ROWS!r})"
    said = subprocess.run([sys.executable, "-P", "-c", f"{program}; print('duckdb' in sys.modules)"], capture_output=True, text=True)
    assert said.stdout == "False\n", said
    assert (tmp_path / "samples/cpu.parquet").is_file()


def test_what_fails_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_samples_apart(tmp_path / "nowhere", ROWS)
    with pytest.raises(TrialError, match="the samples cannot be written: .*InvalidInputException: "):
        write_samples_apart(tmp_path, [(None, "cpu", "host", {"a": object}), *ROWS])


@pytest.mark.parametrize(("rows", "where"), [(ROWS, "cpu.parquet.tmp"), (ROWS * 2000, "cpu.csv.tmp")], ids=["engine", "file"])
def test_a_full_disk_stays_one(tmp_path, rows, where):
    """A run ends on it, and is none of its trials' failure."""
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / where).symlink_to("/dev/full")
    with pytest.raises(OSError) as full:
        write_samples_apart(tmp_path, rows)
    assert full.value.errno == errno.ENOSPC and full.value.filename
