"""Interrupted, ended and killed at any moment: what is finished stays, all else goes, and the run can be gone on with.

Moments are random: see ``chance`` in conftest.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned

FINE = (0, 1)
"""Exit codes of a run that came to its end: 1 says only that its numbers are tainted."""
INTERRUPTED = 130
FOUR_TRIALS = ("--databases", "1,2", "--repeats", "2", "--time-budget", "1m")
THREE_TRIALS = ("--databases", "1", "--repeats", "3", "--time-budget", "1m")
FOREVER = ("--databases", "1", "--duration", "300s", "--time-budget", "1h")
LONGEST = 8.0
"""Seconds within which a run of a few short trials is killed; it takes about seven."""


def _end_at(pgherd, process, number: int, seconds: float):
    """Send a signal so long after the start, if it still runs; returns how it ended."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    return pgherd.end(process)


def _expect_whole(pgherd, retained) -> None:
    """The run is finished as if nothing had happened: all planned trials, each once, and what was there is as it was."""
    record, trials = pgherd.record(), pgherd.trials()
    assert record["state"] == "finished" and record["error"] is None and record["analysis"], record["error"]
    keys = [_key(trial) for trial in trials]
    assert len(set(keys)) == len(keys)
    expected = {trial.key() for trial in planned(DensityOptions.model_validate(record["options"]))}
    assert {_key(trial) for trial in trials if trial["trial"]["reason"] == "planned"} == expected
    after = pgherd.digests()
    assert {name: after.get(name) for name in retained} == retained
    assert [trial["id"] for trial in trials] == [f"{number:04d}" for number in range(1, len(trials) + 1)]


def _key(trial) -> str:
    return f"databases={trial['trial']['point']['databases']}#{trial['trial']['repeat']}"


@pytest.mark.parametrize("clean_first", [True, False], ids=["clean", "resume at once"])
def test_killed_at_a_random_moment(pgherd, chance, clean_first):
    process = pgherd.start_density(*FOUR_TRIALS)
    ended = _end_at(pgherd, process, signal.SIGKILL, chance.uniform(0.1, LONGEST))
    retained = pgherd.digests()
    if clean_first:
        cleaned = pgherd("clean")
        assert cleaned.code == 0, cleaned
        pgherd.nothing_left()
        assert pgherd.digests() == retained
        if pgherd.run and ended.code == -signal.SIGKILL:
            assert pgherd.record()["state"] in ("interrupted", "finished")
    if pgherd.run:
        resumed = pgherd("resume", "last", "--no-report")
        assert resumed.code in FINE, resumed
        _expect_whole(pgherd, retained)
    else:
        pgherd("clean")  # it was killed before there was anything to go on with


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_ended_by_a_signal_at_a_random_moment(pgherd, chance, number):
    process = pgherd.start_density(*THREE_TRIALS)
    # Before it has begun to handle signals there is nothing to take back.
    pgherd.wait_until(lambda: process.poll() is not None or _handles(process.pid, signal.SIGTERM))
    ended = _end_at(pgherd, process, number, chance.uniform(0, LONGEST))
    pgherd.nothing_left(said=ended.err)
    over = ended.code in FINE or (ended.code == -number and "tps" in ended.out)
    if over and pgherd.run is not None and pgherd.record()["state"] == "finished" and "internal error" not in ended.err:
        # But for the interpreter in the latter case, which had nothing left to take back.
        pytest.skip("the run was over before the signal came")
    assert ended.code == INTERRUPTED and ended.message == "interrupted", ended
    retained = pgherd.digests()
    if pgherd.run is None:
        assert not list(pgherd.runs.glob("*")) and "resume" not in ended.err, "a run that never began leaves nothing"
        return
    state = pgherd.record()["state"]
    assert state == "interrupted" or (state == "finished" and len(pgherd.trials()) >= 3)
    assert re.search(rf"Interrupted; {len(pgherd.trials())} finished trials? (is|are) kept. Resume with: pgherd resume \S+", ended.err)
    assert pgherd("resume", str(pgherd.run), "--no-report").code in FINE
    _expect_whole(pgherd, retained)


def _handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        return bool(int(status["SigCgt"], 16) >> (number - 1) & 1)
    except (OSError, KeyError):
        return False


def _interrupt(pgherd, process, times: int = 1):
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    ended = pgherd.end(process)
    assert ended.code == INTERRUPTED, ended
    pgherd.nothing_left()
    return ended


def test_interrupted_while_the_template_is_loaded(elsewhere):
    """And the loader is not held up by what the first one left."""
    process = elsewhere.start_density(*FOREVER, "--scale", "20")
    elsewhere.wait_until(lambda: list(elsewhere.cache.glob("golden/.unfinished-*/data/base/*")) or process.poll() is not None)
    ended = _interrupt(elsewhere, process, times=3)
    assert "0 finished trials are kept" in ended.err
    assert not list(elsewhere.cache.glob("golden/pg*")), "half a template is none"
    process = elsewhere.start_density(*FOREVER, "--scale", "20", "--runs-dir", f"{elsewhere.runs}-2")
    elsewhere.wait_until(lambda: list(elsewhere.cache.glob("golden/.unfinished-*/data/base/*")) or process.poll() is not None)
    process.kill()
    elsewhere.end(process)
    assert elsewhere("clean").code == 0
    elsewhere.nothing_left()
    assert not list(elsewhere.cache.glob("golden/pg*"))


def test_interrupted_while_servers_are_made(pgherd):
    process = pgherd.start_density(*FOREVER, "--databases", "1,4")
    pgherd.wait_until(lambda: list(pgherd.cache.glob("work/*/00*-db*/data")) or process.poll() is not None, pause=0.001)
    _interrupt(pgherd, process)
    assert pgherd.record()["state"] == "interrupted" and not pgherd.trials()


def test_interrupted_while_servers_are_warmed(elsewhere):
    """However long that takes: here ten minutes for each relation."""
    pgherd, script, init = elsewhere, elsewhere.root / "own.sql", elsewhere.root / "init.sql"
    script.write_text("SELECT count(*) FROM things;\n")
    slow = "CREATE FUNCTION pg_prewarm(regclass, text, text) RETURNS int8 LANGUAGE sql AS 'SELECT 0::int8 FROM pg_sleep(600)'"
    instead = "CREATE EXTENSION pg_prewarm; ALTER EXTENSION pg_prewarm DROP FUNCTION pg_prewarm; DROP FUNCTION pg_prewarm"
    init.write_text(f"CREATE TABLE things AS SELECT 1 AS id;\n{instead};\n{slow};\n")
    process = pgherd.start_density(*FOREVER, "--databases", "2", "--script", str(script), "--init-script", str(init))
    pgherd.wait_until(lambda: process.poll() is not None or (_is_warming(pgherd) and _in_a_statement(pgherd) == 2))
    _interrupt(pgherd, process, times=2)
    assert pgherd.record()["state"] == "interrupted" and not pgherd.trials()


def _is_warming(pgherd) -> bool:
    return any("warming" in file.read_text() for file in pgherd.runs.glob("*/live.json"))


def _in_a_statement(pgherd) -> int:
    """How many backends of the program's servers run a query right now."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (process / "cmdline").read_bytes().rstrip(b" \0")
            count += text.endswith(b"[local] SELECT") and os.readlink(process / "cwd").startswith(f"{pgherd.root}/")
    return count


def test_interrupted_in_the_ramp(pgherd):
    process = pgherd.start_density(*FOREVER, "--warmup", "300s")
    pgherd.wait_until(lambda: pgherd.in_trial(1) or process.poll() is not None)
    ended = _interrupt(pgherd, process, times=2)
    assert "Resume with: pgherd resume" in ended.err
    assert pgherd.record()["state"] == "interrupted" and pgherd.record()["error"] == "interrupted by the user"


def test_a_run_that_is_alive_is_left_alone(pgherd):
    process = pgherd.start_density(*FOREVER)
    pgherd.wait_until(lambda: pgherd.in_trial(1) or process.poll() is not None)
    golden = sorted(pgherd.cache.glob("golden/pg*"))
    cleaned = pgherd("clean", "--templates")
    assert cleaned.code == 0 and f"left run {pgherd.run.name} alone: it is running (pid {process.pid})" in cleaned.out, cleaned
    assert sorted(pgherd.cache.glob("golden/pg*")) == golden and "kept the templates" in cleaned.out
    refused = pgherd("resume", "last")
    assert refused.code == 1 and f"run {pgherd.run.name} is being executed by another pgherd" in refused.message
    assert process.poll() is None and pgherd.in_trial(1)
    listed = pgherd("list", "--json")
    assert json.loads(listed.out)["runs"][0]["state"] == "running"
    _interrupt(pgherd, process)
    cleaned = pgherd("clean")
    assert cleaned.code == 0 and "No leftovers found" in cleaned.out, cleaned


def test_resuming_a_finished_run_only_reports(pgherd):
    first = pgherd.density("--databases", "1", "--time-budget", "2s")
    assert first.code in FINE, first
    files = {path: path.read_bytes() for path in pgherd.run.rglob("*") if path.is_file()}
    again = pgherd("resume", "last", "--no-report")
    assert again.code == first.code and again.out == first.out
    assert {path: path.read_bytes() for path in pgherd.run.rglob("*") if path.is_file()} == files


def test_resuming_with_another_postgresql_is_refused(pgherd):
    chosen = installations.choose(LocalNode())
    pgherd.runs.mkdir()
    bin_dir = pgherd.runs / "bin"
    bin_dir.mkdir()
    for tool in os.listdir(chosen.bin):
        (bin_dir / tool).symlink_to(f"{chosen.bin}/{tool}")
    process = pgherd.start_density(*FOREVER, "--pg-bin", str(bin_dir))
    pgherd.wait_until(lambda: pgherd.in_trial(1) or process.poll() is not None)
    _interrupt(pgherd, process)
    (bin_dir / "postgres").unlink()
    (bin_dir / "postgres").write_text('#!/bin/sh\necho "postgres (PostgreSQL) 17.99"\n')
    (bin_dir / "postgres").chmod(0o755)
    before = (pgherd.run / "run.json").read_bytes()
    refused = pgherd("resume", "last")
    assert refused.code == 2, refused
    assert f"is PostgreSQL 17.99 now, but the run started with {chosen.build}; start a new run" in refused.message
    assert (pgherd.run / "run.json").read_bytes() == before
    (bin_dir / "postgres").unlink()
    refused = pgherd("resume", "last")
    assert refused.code == 2 and f"{bin_dir} does not hold postgres" in refused.message


def test_as_an_ordinary_user(ordinary, chance):
    """Without root and without control groups all of it holds too."""
    process = ordinary.start_density(*THREE_TRIALS, "--runtime", "process")
    ordinary.wait_until(lambda: ordinary.in_trial(1) or process.poll() is not None)
    ended = _end_at(ordinary, process, signal.SIGKILL, chance.uniform(0, 2))
    retained = ordinary.digests()
    assert ordinary("clean").code == 0, ended
    ordinary.nothing_left()
    process = ordinary.start("resume", "last", "--no-report")
    ordinary.wait_until(lambda: process.poll() is not None or ordinary.programs("pgbench"))
    process.send_signal(signal.SIGTERM)
    assert ordinary.end(process).code in (INTERRUPTED, *FINE)
    ordinary.nothing_left()
    assert ordinary("resume", "last", "--no-report").code in FINE
    _expect_whole(ordinary, retained)
