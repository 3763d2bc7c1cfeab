"""An external server has the figures of its statistics, and a reason in place of each of the others."""

from __future__ import annotations

import pytest

from pgherd.analysis.histogram import histogram
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.device_io import DeviceIo
from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders
from pgherd.studies.io_profile.options import IoProfileOptions
from pgherd.studies.io_profile.study import STUDY
from pgherd.study.analyse_run import conclude

MB = 1e6
COUNTED = {
    "checkpoint.timed": 0.04,
    "checkpoint.requested": 0.01,
    "checkpoint.buffers_written": 128.0,
    "wal.bytes": 1.0 * MB,
    "io.read_bytes": 3.0 * MB,
    "io.write_bytes": 4.0 * MB,
}
DEVICES = (
    *("stalls", "stalls_in_checkpoints", "stall_time_share", "wal_request_size", "wal_queue_depth", "wal_await", "wal_rate_device"),
    *("data_burst_to_wal_ratio", "burst_write_await", "data_rate_device"),
)
LOG = ("p95_checkpoint_ratio", *(f"p{n}_{when}" for n in (50, 95, 99) for when in ("during_checkpoint", "between_checkpoints")))


@pytest.fixture
def existing(compared):
    def options(*names, **extra):
        given = {"runtime": "external", "start_state": "warm", "read_only": False}
        variants = [
            {"name": name, "study": "density", "options": compared.server_options(dsn=f"host={name} dbname=app", **given)}
            for name in names or ("alpha",)
        ]
        return IoProfileOptions(variants=variants, baseline=variants[0]["name"], max_blocks=4, time_budget=9000, **extra)

    return options


@pytest.fixture
def seen(simulated):
    """Return a trial as an external server shows it: its counters, and logged transactions without any checkpoint."""

    def result_of(trial, number=0, **counted):
        result = simulated(trial, number)
        (phase,) = result.phases
        io = DeviceIo(latency={"outside": histogram([2000] * 4000)}, missing=["external server: the devices are unknown here"])
        metrics = {"server:db01/pg": {"waits.cpu": 1.0, **COUNTED, **counted}}
        metrics["server:db01/pg"] = {name: value for name, value in metrics["server:db01/pg"].items() if value is not None}
        return result.model_copy(
            update={"phases": [phase.model_copy(update={"io": io, "metrics": metrics, "waits": {"db01/pg": {"cpu": [1.0]}}})]}
        )

    return result_of


def test_statistics_have_values_and_all_else_has_its_reason(existing, run, seen):
    options = existing()
    analysis = STUDY.analyse(options, run(options, seen))
    (row,) = analysis.tables["io_profile"]
    values = {name: cell.value for name, cell in row.items() if isinstance(cell, Finding) and cell.value is not None}
    assert values == pytest.approx(
        {
            "throughput": 500,
            "checkpoints": 3,
            "checkpoint_rate": 3,
            "wal_rate_postgres": 1,
            "wal_per_tx": 1e6 / 1024 / 500,
            "relation_read_rate": 3,
            "relation_write_rate": 4,
            "checkpoint_write_rate": 1.048576,
        }
    )
    notes = {name: cell.note for name, cell in row.items() if isinstance(cell, Finding) and cell.value is None}
    assert set(notes) == {*DEVICES, *LOG}
    assert {notes[name] for name in DEVICES} == {"the devices of an external server are not visible here"}
    assert {notes[name] for name in LOG} == {
        "the log of an external server is not visible here, so the times of its checkpoints are unknown"
    }
    assert "pg_stat_checkpointer, or pg_stat_bgwriter" in row["checkpoints"].method and "whole server" in row["wal_per_tx"].method
    assert analysis.answer == "At 500 tps each transaction generates 1.95 kB of WAL; 3 checkpoints per minute were due or requested."
    assert analysis.grade == "A" and row["server"] == "alpha"


def test_no_table_shows_that_there_were_none(existing, run, seen):
    options = existing()
    analysis = conclude(STUDY, options, run(options, seen))
    assert {"stalls", "checkpoints", "io"}.isdisjoint(analysis.tables) and "server_activity" in analysis.tables
    assert analysis.next_steps == ["the table 'server_activity': WAL, I/O operations and replication of the server"]


@pytest.mark.parametrize(("timed", "advice"), [(0.04, set()), (0.0, {"--duration"})])
def test_no_warning_advises_what_cannot_be_done(existing, run, seen, timed, advice):
    options = existing()
    analysis = conclude(STUDY, options, run(options, lambda trial, number: seen(trial, number, **{"checkpoint.timed": timed})))
    assert {word for warning in analysis.warnings for word in warning.split() if word.startswith("--")} == advice
    few = [warning for warning in analysis.warnings if "too few checkpoints" in warning]
    assert [": 0.6 per trial" in warning and warning.endswith("times the server's checkpoint_timeout") for warning in few] == [True] * len(
        advice
    )


def test_what_a_server_does_not_count_is_unknown(existing, run, seen):
    options = existing()
    hidden = dict.fromkeys(COUNTED)
    analysis = STUDY.analyse(options, run(options, lambda trial, number: seen(trial, number, **hidden)))
    assert analysis.answer == "At 500 tps WAL per transaction is unknown; the number of checkpoints is unknown."
    (row,) = analysis.tables["io_profile"]
    assert [name for name, cell in row.items() if isinstance(cell, Finding) and cell.value is not None] == ["throughput"]
    assert row["relation_read_rate"].note == "pg_stat_io needs PostgreSQL 16" and "could not be read" in row["checkpoints"].note


def test_a_comparison_has_the_wal_of_each_server(existing, run, seen):
    options = existing("alpha", "beta")

    def play(trial, number):
        return seen(trial, number, **{"wal.bytes": (2.0 if trial.point["variant"] == "beta" else 1.0) * MB})

    analysis = conclude(STUDY, options, run(options, play))
    assert analysis.answer.endswith("; WAL per transaction: 1.95 kB with alpha, 3.91 kB with beta.")
    assert analysis.findings["wal_per_tx:beta"].value == pytest.approx(2e6 / 1024 / 500) and analysis.findings["stalls:beta"].value is None
    assert not [warning for warning in analysis.warnings if "--wal-volume" in warning or "--checkpoint-timeout" in warning]


def test_latency_is_not_drawn_as_between_checkpoints(existing, run, seen):
    options = existing()
    record = RunRecord(run="r", study="io-profile", options={}, started=0.0, pgherd="0")
    inputs = FigureInputs(record, Analysis(answer="", grade="A"), run(options, seen))
    with pytest.raises(FigureUnavailable, match="the log of an external server is not visible here"):
        builders("io-profile")["latency"](inputs)
