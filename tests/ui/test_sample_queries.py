from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.model.errors import PgherdError, UsageError
from pgherd.store.run_directory import RunDirectory
from pgherd.store.samples import write_samples
from pgherd.ui import sample_queries
from pgherd.ui.sample_queries import MetricChoice, choices, read_trial, series, trial_line, trial_lines

CPU = MetricChoice("cgroup_cpu", "container", "cpu.usage", ())
MEMORY = MetricChoice("cgroup_memory", "container", "memory.usage", ())


@pytest.fixture
def trial(tmp_path):
    """Five seconds of two containers: one uses half a core, the other a whole one and gives a reading beside the ticks."""
    rows = []
    for second in range(6):
        rows.append((1000.0 + second, "cgroup_cpu", "container:a", {"cpu.usage": 7 + 0.5 * second}))
        rows.append((1000.0 + second, "cgroup_cpu", "container:b", {"cpu.usage": float(second)}))
        rows.append((1000.0 + second, "cgroup_memory", "container:a", {"memory.usage": 100.0 + second}))
        rows.append((1000.0 + second, "cpu", "host", {"cpu.user": 1.5 * second, "cpu.online": 2.0}))
    rows.append((1002.05, "cgroup_cpu", "container:b", {"cpu.usage": 2.06}))
    write_samples(tmp_path, sorted(rows))
    return tmp_path


def test_what_a_trial_has(trial):
    choices_by_key = {choice.key: choice for choice in choices(trial)}
    assert set(choices_by_key) == {
        "container/cgroup_cpu/cpu.usage",
        "container/cgroup_memory/memory.usage",
        "host/cpu/cpu.user",
        "host/cpu/cpu.online",
    }
    cpu = choices_by_key["container/cgroup_cpu/cpu.usage"]
    assert (cpu.entities, cpu.unit, cpu.counter, cpu.help) == (("container:a", "container:b"), "cores", True, "CPU time used")
    assert choices_by_key["container/cgroup_memory/memory.usage"].unit == "bytes" and not choices_by_key["host/cpu/cpu.online"].counter


def test_a_trial_of_version_1_has_the_names_of_today(tmp_path):
    rows = [(1000.0 + second, "cgroup_memory", "budget", {"memory.fault": 5.0 * second}) for second in range(3)]
    write_samples(tmp_path, rows)
    (choice,) = choices(tmp_path)
    assert choice.key == "run-cgroup/cgroup_memory/memory.page_faults" and choice.entities == ("run-cgroup",)
    assert [(entity, value) for entity, _, value, _, _ in series(tmp_path, choice).points] == [("run-cgroup", 5.0), ("run-cgroup", 5.0)]


def test_units_of_rates():
    assert MetricChoice("database", "server", "db.xact_commit", ()).unit == "transactions/s"
    assert MetricChoice("database", "server", "checkpoint.write_time", ()).unit == "s/s"
    assert MetricChoice("x", "y", "unknown", ()).unit == "" and MetricChoice("x", "y", "unknown", ()).metric is None


def test_counters_are_shown_as_rates(trial):
    result = series(trial, CPU)
    rates = {entity: [value for e, _, value, _, _ in result.points if e == entity] for entity in ("container:a", "container:b")}
    assert rates["container:a"] == pytest.approx([0.5] * 5) and rates["container:b"] == pytest.approx([1.0] * 5)
    assert [(row.entity, row.n, row.median) for row in result.rows] == [("container:a", 5, 0.5), ("container:b", 5, pytest.approx(1.0))]


def test_gauges_are_shown_as_they_are(trial):
    result = series(trial, MEMORY)
    assert [(t, value) for _, t, value, _, _ in result.points] == [(1000.0 + i, 100.0 + i) for i in range(6)]
    (row,) = result.rows
    assert (row.n, row.mean, row.minimum, row.maximum) == (6, 102.5, 100, 105)


def test_a_counter_that_falls_begins_anew(tmp_path):
    levels = [10.0, 12.0, 1.0, 3.0]
    write_samples(tmp_path, [(float(i), "cgroup_cpu", "container:a", {"cpu.usage": level}) for i, level in enumerate(levels)])
    assert [value for _, _, value, _, _ in series(tmp_path, CPU).points] == [2.0, 2.0]


def test_only_what_is_asked_for(trial):
    result = series(trial, CPU, ["container:b"], first=1002.0, last=1003.5)
    assert {entity for entity, *_ in result.points} == {"container:b"} and [round(t) for _, t, *_ in result.points] == [1002, 1003]
    assert (result.first, result.last) == (1002.0, 1003.5)
    nothing = series(trial, CPU, ["container:zz"])
    assert nothing.points == () and nothing.rows == ()
    assert series(trial, CPU, first=5000.0).points == ()


def test_thinning_keeps_the_peaks(tmp_path):
    rows = [(float(i), "cgroup_memory", "container:a", {"memory.usage": 1e9 if i == 7321 else 1.0}) for i in range(10_000)]
    write_samples(tmp_path, rows)
    result = series(tmp_path, MEMORY, buckets=100)
    assert 99 <= len(result.points) <= 102 and result.width == pytest.approx(99.99)
    assert max(high for *_, high in result.points) == 1e9 and min(low for *_, low, _ in result.points) == 1.0


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 400), st.integers(1, 50), st.floats(0, 1e9), st.floats(-0.2, 0.2))
def test_no_tick_of_steady_samples_is_lost_or_shared(tmp_path_factory, count, most, start, jitter):
    trial = tmp_path_factory.mktemp("trial")
    rows = [(start + i + jitter * (i % 2), "cgroup_memory", "container:a", {"memory.usage": float(i)}) for i in range(count)]
    write_samples(trial, rows)
    result = series(trial, MEMORY, buckets=most)
    assert len(result.points) <= most + 2 and result.rows[0].n == count
    if count <= most:
        assert [value for _, _, value, _, _ in result.points] == list(range(count))


def test_many_series_have_fewer_points_each(tmp_path):
    rows = [(float(i), "cgroup_memory", f"container:c{j}", {"memory.usage": 1.0}) for i in range(2000) for j in range(40)]
    write_samples(tmp_path, rows)
    assert len(series(tmp_path, MEMORY).points) <= sample_queries._MAX_POINTS + 80


def test_it_is_said_when_a_point_is_more_than_one_reading(tmp_path):
    for number, (times, thinned) in enumerate((((0, 1, 2), False), ((0, 1, 1.3, 2), True))):
        (tmp_path / str(number)).mkdir()
        write_samples(tmp_path / str(number), [(float(t), "cgroup_memory", "container:a", {"memory.usage": 1.0}) for t in times])
        assert series(tmp_path / str(number), MEMORY).thinned is thinned


def test_a_trial_without_samples_offers_nothing(tmp_path):
    assert choices(tmp_path) == []
    with pytest.raises(UsageError, match="no samples of cgroup_cpu"):
        series(tmp_path, CPU)


def test_a_metric_that_its_file_lacks(trial):
    with pytest.raises(UsageError, match=r"no samples of cpu\.throttled"):
        series(trial, MetricChoice("cgroup_cpu", "container", "cpu.throttled", ()))


def test_damaged_files_are_a_message(trial):
    (trial / "samples" / "cgroup_cpu.parquet").write_bytes(b"PAR1")
    for look in (lambda: choices(trial), lambda: series(trial, CPU)):
        with pytest.raises(UsageError, match="cannot be read"):
            look()


def test_links_are_not_followed(trial):
    (trial / "samples" / "memory.parquet").symlink_to("/etc/passwd")
    assert "memory" not in [file.stem for file in sample_queries.files(trial)]


@pytest.fixture
def directory(runs):
    return RunDirectory(sorted(runs.iterdir())[0])


def test_trials_by_id_and_point(directory):
    lines = trial_lines(directory)
    results = directory.results()
    assert [line.id for line in lines] == [result.id for result in results]
    assert [line.point for line in lines] == [f"databases {result.trial.point['databases']}" for result in results]
    assert [line.size for line in lines] == [result.trial.point["databases"] for result in results]
    assert lines[0].label == f"0001: {lines[0].point}"


def test_as_the_store_writes_them(directory, tmp_path):
    result = directory.results()[0]
    other = RunDirectory(tmp_path / "other")
    other.finish_trial(result)
    assert trial_lines(other)[0].point == f"databases {result.trial.point['databases']}"


@pytest.mark.parametrize("text", ["", "{", '{"point": [', "\udcff", '{"trial": {"point": 3}}'])
def test_a_damaged_trial_has_no_point_but_is_there(directory, text):
    file = directory.path / "trials" / "0001" / "trial.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    line = trial_lines(directory)[0]
    assert (line.id, line.point, line.label) == ("0001", "", "0001")
    with pytest.raises(UsageError, match="cannot be read"):
        read_trial(line)


@pytest.mark.parametrize("trial", ["", "1", "../0001", "0001.partial", "9999", "<b>"])
def test_only_a_trial_is_one(directory, trial):
    (directory.path / "trials" / "0001.partial").mkdir()
    with pytest.raises(UsageError, match="no finished trial"):
        trial_line(directory, trial)


def test_reading(directory):
    assert read_trial(trial_line(directory, "0002")) == directory.results()[1]


def test_rows_that_a_file_cannot_hold_are_not_read(tmp_path):
    (tmp_path / "samples").mkdir()
    select = "SELECT 1.0::DOUBLE AS t, 'host' AS entity, 2.0::DOUBLE AS \"cpu.user\" FROM range(2000000)"
    duckdb.sql(f"COPY ({select}) TO '{tmp_path}/samples/cpu.parquet' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 2000000)")
    for read in (lambda: choices(tmp_path), lambda: series(tmp_path, MetricChoice("cpu", "host", "cpu.user", ()))):
        with pytest.raises(PgherdError, match=r"claims 2,000,000 rows"):
            read()


def test_a_directory_that_looks_like_a_pattern(tmp_path):
    odd = tmp_path / "run[1]*"
    odd.mkdir()
    write_samples(odd, [(1000.0 + second, "cpu", "host", {"cpu.online": 2.0}) for second in range(3)])
    (choice,) = choices(odd)
    assert [value for _, _, value, _, _ in series(odd, choice).points] == [2.0, 2.0, 2.0]
