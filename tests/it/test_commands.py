"""`pgherd show RUN TRIAL --repro-script`: the script really repeats the trial, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pgherd.host.cgroup_parent import read_layout
from pgherd.model.load import Phase
from pgherd.node.local import LocalNode
from pgherd.node.process import MARK
from pgherd.postgres import installations
from pgherd.report.repro_script import script
from pgherd.store.run_directory import RunDirectory

PATIENCE = 120.0


def tmp_dir(program) -> Path:
    """A place for the script: its name is one that must be quoted."""
    path = program.root / "it's a place"
    path.mkdir(exist_ok=True)
    path.chmod(0o1777)
    return path


def repeat(program, file: Path, **environment: str) -> subprocess.Popen[str]:
    """Start the script as the program's account."""
    return subprocess.Popen(
        [*program.prefix, "sh", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_dir(program)), "PGHOST": "/nonexistent", MARK: "1"} | environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell cannot trap what it was told to ignore
    )


def to_its_end(program, file: Path, **environment: str) -> tuple[dict[str, float], str]:
    """Run the script; what it printed as numbers, and what it said on stderr."""
    process = repeat(program, file, **environment)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    lines = [line for line in out.splitlines() if not line.startswith("phase ")]
    result = {name: float(value) for name, value in (re.fullmatch(r"(\S+): ([0-9.]+) tps", line).groups() for line in lines)}
    assert len(result) == len(lines)
    nothing_left(program)
    return result, err


def nothing_left(program) -> None:
    """No file, no process, no control group of the script's."""
    path = str(tmp_dir(program))
    assert os.listdir(path) == []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert path.encode() not in (entry / "cmdline").read_bytes(), entry
    layout = read_layout(LocalNode())
    for hierarchy in (*layout.v1.values(), *([layout.v2] if layout.v2 else [])):
        assert not list(Path(hierarchy.own_dir).glob("repeat-*"))


def written(program, number: int) -> Path:
    """The script of a trial of the only run, as a file that the program's account can read."""
    shown = program("show", "last", str(number), "--repro-script")
    assert shown.code == 0, shown
    file = program.runs / f"repeat-{number}.sh"
    file.write_text(shown.out)
    file.chmod(0o644)
    return file


def repeats(program, file: Path, trial: dict) -> str:
    """Run the script, which drives what the trial drove; returns what it said. benchmarks/repeated.py has how near their rates are."""
    driven = {target["target"] for phase in trial["phases"] for target in phase["targets"]}
    result, text = to_its_end(program, file)
    total = result.pop("sum")
    assert set(result) == driven
    assert all(value > 0 for value in result.values())
    assert total == pytest.approx(sum(result.values()), rel=0.001)
    return text


@pytest.mark.parametrize("kind", ["system", "embedded"])
def test_two_databases_of_either_postgresql(pgherd, kind):
    result = [item for item in installations.find_all(LocalNode()) if item.kind == kind]
    if not result:
        pytest.skip(f"there is no {kind} PostgreSQL here")
    ended = pgherd.density("--databases", "2", "--duration", "2s", "--warmup", "1s", "--time-budget", "1s", "--pg-bin", result[0].bin)
    assert ended.code in (0, 1), ended
    text = repeats(pgherd, written(pgherd, 1), pgherd.trials()[0])
    record = RunDirectory(pgherd.run).record()
    limited = record.environment.runtime == "cgroup"
    assert not text or not limited, "root may make control groups wherever pgherd could"
    pgherd.ended_well(ended)


def test_schemas_of_one_database(pgherd):
    load = ("--workload", "tpcb-like", "--scale", "1", "--busy-clients", "2", "--quiet-clients", "1", "--periods", "1")
    size = ("--shared-buffers-percent", "25", "--period-length", "1s", "--warmup", "0.5s", "--runtime", "process")
    ended = pgherd("consolidation", "--schemes", "shared-database", *load, *size, "--no-report")
    assert ended.code in (0, 1), ended
    repeats(pgherd, written(pgherd, 1), pgherd.trials()[0])
    pgherd.ended_well(ended)


def test_as_an_ordinary_user_with_a_script_of_their_own(ordinary):
    home = ordinary.root
    home.chmod(0o755)
    file = home / "it's $(mine) @1.sql"
    file.write_text("\\set aid random(1, 100000 * :scale)\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n")
    file.chmod(0o644)
    ended = ordinary.density("--databases", "1,2", "--script", f"{file}@2", "--time-budget", "1s")
    assert ended.code in (0, 1), ended
    ordinary.runs.chmod(0o777)
    for number, trial in enumerate(ordinary.trials()[:2], start=1):
        repeated = written(ordinary, number)
        assert repeated.read_text().count("\nstart db") == 2, "idle servers are up in every trial"
        repeats(ordinary, repeated, trial)


def test_phases_clients_outside_failures_and_interrupts(pgherd):
    """One run for all of it: the trial is rewritten before its script is made."""
    ended = pgherd.density("--databases", "2", "--client-placement", "outside", "--runtime", "process", "--time-budget", "1s")
    assert ended.code in (0, 1), ended
    directory = RunDirectory(pgherd.run)
    result = directory.results()[0]
    (loads,) = (phase.loads for phase in result.trial.phases)
    item = dict([next(iter(loads.items()))])
    file = pgherd.runs / "repeat.sh"

    def written_with(*phases: Phase) -> Path:
        trial = result.trial.model_copy(update={"phases": phases})
        file.write_text(script(result.model_copy(update={"trial": trial}), directory.record()))
        return file

    process = repeat(
        pgherd, written_with(Phase(name="both", warmup=0, seconds=1, loads=loads), Phase(name="one", warmup=0, seconds=1, loads=item))
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    shape = [re.sub(r"[0-9.]+ tps", "N tps", line) for line in out.splitlines()]
    first, second = loads
    assert shape == ["phase both:", f"{first}: N tps", f"{second}: N tps", "sum: N tps", "phase one:", f"{first}: N tps", "sum: N tps"]
    assert not err, "without limits there is nothing to warn of"
    nothing_left(pgherd)

    written_with(Phase(warmup=0, seconds=1, loads=item))
    file.write_text(file.read_text().replace("-b select-only@1", "-b no-such-script"))
    process = repeat(pgherd, file)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "tps" not in out
    assert "no-such-script" in err and "pgbench failed" in err
    nothing_left(pgherd)

    written_with(Phase(warmup=0, seconds=600, loads=loads))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = repeat(pgherd, file)
        clients = pgherd.wait_until(lambda: list(tmp_dir(pgherd).glob("repeat-*/clients/002.out")))
        time.sleep(0.2)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, err
        assert not clients[0].exists()
        nothing_left(pgherd)

    process = repeat(pgherd, file)
    pgherd.wait_until(lambda: list(tmp_dir(pgherd).glob("repeat-*/clients/002.out")))
    process.kill()
    process.communicate(timeout=PATIENCE)
    location = str(tmp_dir(pgherd)).encode()
    pgherd.wait_until(lambda: not any(location in command_line for command_line in command_lines()))
    for path in tmp_dir(pgherd).iterdir():
        shutil.rmtree(path)


def command_lines() -> list[bytes]:
    collected = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            collected.append((entry / "cmdline").read_bytes())
    return collected


def test_the_size_of_a_database(pgherd):
    ended = pgherd("database-size", "--scales", "1,2", "--no-report")
    assert ended.code == 0, ended
    process = repeat(pgherd, written(pgherd, 2))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out == f"bench: {pgherd.trials()[1]['probe']['database_bytes']:.0f} bytes\n"
    nothing_left(pgherd)
