from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from functools import partial

import duckdb
import pytest

from pgherd.distributed.merge_results import qualified
from pgherd.model.errors import RunDirectoryError, TrialError
from pgherd.store.samples import (
    HostSamples,
    check_files,
    escape,
    merge_samples,
    open_database,
    read_relation,
    read_samples,
    write_samples,
    write_samples_apart,
)

# ---- one host


def test_samples_come_back_by_sampler_and_metric(tmp_path):
    samples = [
        (1000.123456, "cpu", "host", {"cpu.user": 1.5, "cpu.idle": 7.0}),
        (1001.123456, "cpu", "host", {"cpu.user": 2.5}),
        (1000.5, "cgroup", "container:db01", {"memory.usage": 4096.0}),
    ]
    files = write_samples(tmp_path, samples)
    assert sorted(file.name for file in files) == ["cgroup.parquet", "cpu.parquet"]
    assert read_samples(tmp_path, "cpu", "cpu.user") == [(1000.123456, "host", 1.5), (1001.123456, "host", 2.5)]
    assert read_samples(tmp_path, "cpu", "cpu.idle") == [(1000.123456, "host", 7.0)]
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == ["cgroup.parquet", "cpu.parquet"]


@pytest.mark.parametrize(("sampler", "metric"), [("none", "x"), ("cpu", "none")])
def test_what_was_not_sampled_is_empty(tmp_path, sampler, metric):
    write_samples(tmp_path, [(1.0, "cpu", "host", {"cpu.user": 1.0})])
    assert read_samples(tmp_path, sampler, metric) == []


def test_nothing_sampled_writes_nothing(tmp_path):
    assert write_samples(tmp_path, []) == []


def test_odd_entities_survive(tmp_path):
    entity = 'container:a,"b"\n; drop table x'
    write_samples(tmp_path, [(1.0, "cpu", entity, {"cpu.user": 1.0})])
    assert read_samples(tmp_path, "cpu", "cpu.user") == [(1.0, entity, 1.0)]


@pytest.mark.parametrize("few", [0, 10**9])
def test_few_and_many_cells_give_the_same_file(tmp_path, monkeypatch, few):
    """Few are handed over as values, many by way of a file."""
    monkeypatch.setattr("pgherd.store.samples._MAX_CELLS", few)
    samples = [(0.1 + i, "cpu", f"disk:\u00e4 {i}'", {"a": 1 / 3 * 10**i} | ({"b": -0.0} if i % 2 else {})) for i in range(40)]
    write_samples(tmp_path, samples)
    assert read_samples(tmp_path, "cpu", "a") == [(t, entity, values["a"]) for t, _, entity, values in samples]
    assert [t for t, _, value in read_samples(tmp_path, "cpu", "b")] == [t for t, _, _, values in samples if "b" in values]
    assert [path.name for path in (tmp_path / "samples").iterdir()] == ["cpu.parquet"]


# ---- several hosts


def renamed(entity, host):
    return qualified(entity, host)


def host(tmp_path, name, ahead, rows):
    directory = tmp_path / name
    directory.mkdir()
    write_samples(directory, rows)
    return HostSamples(directory, ahead, partial(renamed, host=name))


def test_rows_of_all_hosts_stand_on_one_clock_under_their_own_names(tmp_path):
    a = host(tmp_path, "a", 100.0, [(101.0, "cpu", "host", {"cpu.user": 1.0}), (102.0, "cpu", "host", {"cpu.user": 2.0})])
    b = host(
        tmp_path,
        "b",
        -50.0,
        [
            (-48.5, "cpu", "host", {"cpu.user": 5.0, "cpu.irq": 0.5}),
            (-48.5, "diskstats", "disk:sda", {"reads": 7.0}),
            (-48.5, "diskstats", "disk:sdb", {"reads": 8.0}),
            (-48.0, "cgroup_cpu", "container:db2", {"cpu.usage": 3.0}),
        ],
    )
    target = tmp_path / "trial"
    assert [file.name for file in merge_samples([a, b], target)] == ["cgroup_cpu.parquet", "cpu.parquet", "diskstats.parquet"]
    assert read_samples(target, "cpu", "cpu.user") == [(1.0, "host:a", 1.0), (1.5, "host:b", 5.0), (2.0, "host:a", 2.0)]
    assert read_samples(target, "cpu", "cpu.irq") == [(1.5, "host:b", 0.5)], "what a host does not have is no zero"
    assert read_samples(target, "diskstats", "reads") == [(1.5, "disk:b/sda", 7.0), (1.5, "disk:b/sdb", 8.0)]
    assert read_samples(target, "cgroup_cpu", "cpu.usage") == [(2.0, "container:db2", 3.0)]


def test_without_samples_nothing_is_written(tmp_path):
    assert merge_samples([HostSamples(tmp_path / "a", 0.0, str)], tmp_path / "trial") == []
    assert not (tmp_path / "trial").exists()


def test_one_name_on_two_hosts_is_two_entities(tmp_path):
    """Entities with the same name in several files are distinguished by their file."""
    rows = [(1.0, "swap", "swap:own", {"swap.used": 1.0}), (2.0, "swap", "swap:own", {"swap.used": 2.0})]
    parts = [host(tmp_path, name, ahead, rows) for name, ahead in (("a", 0.0), ("b", 0.5), ("c", -0.5))]
    merge_samples(parts, tmp_path / "trial")
    assert sorted(read_samples(tmp_path / "trial", "swap", "swap.used")) == [
        (0.5, "swap:b/own", 1.0), (1.0, "swap:a/own", 1.0), (1.5, "swap:b/own", 2.0), (1.5, "swap:c/own", 1.0), (2.0, "swap:a/own", 2.0),
        (2.5, "swap:c/own", 2.0),
    ]  # fmt: skip


# ---- run directories of version 1


def test_old_names_of_metrics_and_entities_are_read_as_those_of_today(tmp_path):
    samples = [
        (1.0, "cgroup_memory", "budget", {"memory.refault_file": 1.0, "memory.usage": 10.0}),
        (1.0, "cgroup_memory", "container:budget", {"memory.refault_file": 2.0}),
        (2.0, "cgroup_memory", "budget:host1", {"memory.refault_file": 3.0}),
    ]
    write_samples(tmp_path, samples)
    refaults = [(1.0, "container:budget", 2.0), (1.0, "run-cgroup", 1.0), (2.0, "run-cgroup:host1", 3.0)]
    assert sorted(read_samples(tmp_path, "cgroup_memory", "memory.refaults_file")) == refaults
    assert read_samples(tmp_path, "cgroup_memory", "memory.usage") == [(1.0, "run-cgroup", 10.0)]
    assert read_samples(tmp_path, "cgroup_memory", "memory.refault_file") == []


def test_a_run_that_was_resumed_has_old_and_new_names_in_one_column(tmp_path):
    files = []
    for number, name in enumerate(("ctxt", "context_switches")):
        (tmp_path / name).mkdir()
        files += map(str, write_samples(tmp_path / name, [(float(number), "cpu", "host", {name: 10.0 + number, "cpu.user": 1.0})]))
    with open_database(threads=1) as database:
        rows = read_relation(database, files)
        assert sorted(rows.columns) == ["context_switches", "cpu.user", "entity", "filename", "t"]
        assert sorted(rows.select("context_switches").fetchall()) == [(10.0,), (11.0,)]


# ---- files of another user


def claim(directory, rows):
    """Write a sample file of a few hundred bytes with ``rows`` equal rows."""
    (directory / "samples").mkdir(exist_ok=True)
    file = directory / "samples/cpu.parquet"
    select = f"SELECT 1.0::DOUBLE AS t, 'host' AS entity, 2.0::DOUBLE AS \"cpu.user\" FROM range({rows})"
    duckdb.sql(f"COPY ({select}) TO '{file}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {rows})")
    return file


def test_more_rows_than_a_file_can_hold_are_not_read(tmp_path):
    file = claim(tmp_path, 5_000_000)
    assert file.stat().st_size < 2000
    began = time.process_time()
    with pytest.raises(RunDirectoryError, match=r"cpu.parquet claims 5,000,000 rows in \d+ bytes"):
        read_samples(tmp_path, "cpu", "cpu.user")
    assert time.process_time() - began < 2
    claim(tmp_path, 50_000)
    assert len(read_samples(tmp_path, "cpu", "cpu.user")) == 50_000, "an hour of a constant gauge is no claim"


def test_a_day_of_constant_gauges_is_read(tmp_path):
    rows = 20 * 86_400
    (tmp_path / "samples").mkdir()
    file = tmp_path / "samples/cpu.parquet"
    select = "SELECT 1.7e9::DOUBLE + s AS t, 'container:c' || e AS entity, 2.0::DOUBLE AS x FROM range(86400) a(s), range(20) b(e)"
    duckdb.sql(f"COPY ({select}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
    with open_database(threads=1) as database:
        check_files(database, [str(file)])
        assert read_relation(database, [str(file)]).aggregate("count(*)").fetchall() == [(rows,)]


def test_names_are_no_patterns(tmp_path):
    odd = tmp_path / "run[12]*?"
    for directory, value in ((odd, 1.0), (tmp_path / "run1xx", 2.0)):
        directory.mkdir()
        write_samples(directory, [(1.0, "cpu", "host", {"cpu.user": value})])
    assert read_samples(odd, "cpu", "cpu.user") == [(1.0, "host", 1.0)]
    merge_samples([HostSamples(odd, 0.0, str)], tmp_path)
    assert read_samples(tmp_path, "cpu", "cpu.user") == [(1.0, "host", 1.0)]
    assert escape("/a[1]*?") == "/a[[]1][*][?]"


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_link_or_pipe_is_no_sample_file(tmp_path, kind):
    (file,) = write_samples(tmp_path, [(1.0, "cpu", "host", {"cpu.user": 1.0})])
    other = file.rename(tmp_path / "other.parquet")
    if kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to(other)
    with open_database(threads=1) as database, pytest.raises(RunDirectoryError, match="samples cannot be read"):
        check_files(database, [str(file)])


def test_a_directory_elsewhere_has_no_samples_of_a_run(tmp_path):
    other, trial = tmp_path / "other", tmp_path / "trial"
    other.mkdir()
    trial.mkdir()
    write_samples(other, [(1.0, "cpu", "host", {"cpu.user": 1.0})])
    (trial / "samples").symlink_to(other / "samples")
    with pytest.raises(RunDirectoryError, match="samples cannot be read: .*/trial/samples is a link"):
        read_samples(trial, "cpu", "cpu.user")


def test_long_names_of_entities_are_cut_and_texts_are_no_values(tmp_path):
    (tmp_path / "samples").mkdir()
    file = tmp_path / "samples/cpu.parquet"
    duckdb.sql(f"COPY (SELECT 1.0 AS t, repeat('x', 1000000) AS entity, 1 AS a, 'b' AS b) TO '{file}'")
    assert read_samples(tmp_path, "cpu", "a") == [(1.0, "x" * 300, 1.0)]
    with pytest.raises(duckdb.ConversionException):
        read_samples(tmp_path, "cpu", "b")


def test_memory_for_samples_is_limited_and_nothing_is_written():
    with open_database(threads=1) as database:
        assert database.execute("SELECT current_setting('memory_limit'), current_setting('temp_directory')").fetchall() == [
            ("953.6 MiB", "")
        ]


# ---- writer in a separate process


ROWS = [(float(t), "cpu", "host", {"cpu.user": t / 4}) for t in range(3)]


def test_the_same_is_written(tmp_path):
    write_samples_apart(tmp_path, iter(ROWS))
    assert read_samples(tmp_path, "cpu", "cpu.user") == [(t, "host", values["cpu.user"]) for t, _, _, values in ROWS]


def test_the_engine_stays_out_of_the_process_that_asks(tmp_path):
    program = "import pathlib, sys; from pgherd.store.samples import *; "
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


INTERRUPTED_IMPORT = """
import enum, os, pathlib, signal, sys
from pgherd.node.interruption import ended_by_signals
from pgherd.store.samples import write_samples

original = enum.EnumType.__prepare__

def prepare(*arguments, **options):
    if sys._getframe(1).f_code.co_name == "_create_" and "duckdb" in sys.modules:  # as the native module makes its types
        os.kill(os.getpid(), signal.SIGINT)
    return original(*arguments, **options)

enum.EnumType.__prepare__ = prepare
try:
    with ended_by_signals():
        write_samples(pathlib.Path(sys.argv[1]), [(1.0, "cpu", "host", {"user": 1.0})])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_while_duckdb_is_imported_interrupts_in_order(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr
