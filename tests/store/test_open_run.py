from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

import pgherd
from pgherd.model.errors import RunDirectoryError, UsageError
from pgherd.store.open_run import Run, open_run
from pgherd.store.version_1 import ENTITIES, METRICS


@pytest.fixture
def run(run_on_disk) -> Run:
    return pgherd.open_run(run_on_disk)


def test_a_run_is_found_by_path_name_and_last(run_on_disk):
    root = run_on_disk.parent
    for arguments in ((run_on_disk,), (str(run_on_disk),), (run_on_disk.name, root), ("density-0001", str(root)), ("last", root)):
        assert pgherd.open_run(*arguments).path == run_on_disk
    with pytest.raises(RunDirectoryError, match="no run 'nothing'"):
        open_run("nothing", root)


def test_answer_and_findings_are_those_of_the_analysis(run, run_on_disk):
    analysis = run.record.analysis
    assert (run.name, run.study, run.answer, run.grade) == (run_on_disk.name, "density", analysis.answer, analysis.grade)
    assert run.findings and run.findings == analysis.findings
    assert analysis.answer in repr(run) and run.name in repr(run)


def test_a_table_has_typed_columns_and_those_of_the_interval(run):
    table = run.table("density")
    types = dict(zip(table.columns, map(str, table.types), strict=True))
    assert types["databases"] == "BIGINT" and types["throughput_low"] == "DOUBLE" and types["throughput_unit"] == "VARCHAR"
    rows = run.record.analysis.tables["density"]
    assert table.select("databases, throughput, throughput_high").fetchall() == [
        (row["databases"], row["throughput"].value, row["throughput"].high) for row in rows
    ]
    with pytest.raises(UsageError, match="has no table 'none'; its tables are density"):
        run.table("none")


def test_trials_have_their_coordinates(run):
    outcome = run.trials()
    assert outcome.columns[:3] == ["trial", "databases", "repeat"]
    assert outcome.select("trial, databases, tainted").fetchall() == [
        (result.id, result.trial.point["databases"], result.tainted) for result in run.results
    ]
    ((rate,),) = outcome.filter("trial = '0001'").select("throughput").fetchall()
    assert rate == pytest.approx(run.results[0].phases[0].throughput)


def test_samples_of_one_sampler_have_a_column_for_each_metric(run):
    assert run.samplers == ["cgroup_memory", "cpu"]
    cpu = run.samples("cpu")
    assert sorted(cpu.columns) == ["cpu.idle", "cpu.user", "entity", "t", "trial"] and cpu.columns[0] == "trial"
    assert cpu.filter("trial = '0002'").select('t, entity, "cpu.user"').fetchall() == [(1e9 + s, "host", 0.5 * s) for s in range(3)]
    assert len(cpu) == 3 * len(run.results)
    with pytest.raises(UsageError, match="no samples of 'none'; its samplers are cgroup_memory, cpu"):
        run.samples("none")


def test_samples_of_an_older_version_have_the_present_names(run_on_disk, run):
    former, present = next(iter(METRICS.items()))
    kind, now = next(iter(ENTITIES.items()))
    file = next(run_on_disk.glob("trials/0001/samples")) / "older.parquet"
    duckdb.sql(f"SELECT 1.0 AS t, '{kind}:a' AS entity, 7.0 AS \"{former}\"").write_parquet(str(file))
    samples = run.samples("older")
    assert samples.columns == ["trial", "t", "entity", present] and samples.fetchall() == [("0001", 1.0, f"{now}:a", 7.0)]


def test_all_samples_are_one_long_table(run):
    every = run.samples()
    assert every.columns == ["trial", "sampler", "t", "entity", "metric", "value"]
    chosen = every.filter("trial = '0001' AND sampler = 'cpu' AND t = 1e9 + 2").fetchall()
    assert chosen == [("0001", "cpu", 1e9 + 2, "host", "cpu.idle", 1.0), ("0001", "cpu", 1e9 + 2, "host", "cpu.user", 1.0)]


def test_sql_finds_relations_by_the_names_of_their_variables(run):
    cpu, trials = run.samples("cpu"), run.trials()
    assert duckdb.sql("SELECT count(*) FROM cpu JOIN trials USING (trial)").fetchall() == [(len(cpu),)] and len(trials)


def test_a_run_without_analysis_trials_and_samples(run_on_disk, run):
    for path in sorted(run_on_disk.glob("trials/*")):
        path.rename(path.with_suffix(".partial"))
    (run_on_disk / "run.json").write_text(run.record.model_copy(update={"analysis": None}).model_dump_json(by_alias=True))
    empty = Run(run_on_disk)
    assert (empty.answer, empty.grade, empty.findings, empty.tables, empty.samplers) == (None, None, {}, [], [])
    for read in (empty.trials, empty.samples, lambda: empty.samples("cpu"), lambda: empty.table("density")):
        with pytest.raises(UsageError, match=empty.name):
            read()


def test_importing_the_package_loads_nothing_else():
    code = "import sys, pgherd; print([name for name in sys.modules if name.startswith(('pgherd.', 'duckdb', 'pydantic'))])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"
