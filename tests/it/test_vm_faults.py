"""What happens to a guest while a study runs in it: frozen, killed, out of disk, out of memory, with a kernel that does not boot. Each ends
in a clear result and leaves nothing. The processors are emulated; moments are random (see ``chance`` in conftest.py)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgherd.node.local import LocalNode

NODE = LocalNode()
_VM = ("--runtime", "vm", "--databases", "1", "--vcpus", "1", "--memory", "384MB")
_ENDLESS = ("--duration", "600s", "--time-budget", "700s")
LONGEST = 20.0
"""Seconds within which a guest is hit; on two quiet cores its server is loaded after about twelve."""

pytestmark = pytest.mark.timeout(900)


def changed(*statements: str) -> tuple[str, ...]:
    """A command that runs the program with some of its constants changed."""
    text = "sys.argv = sys.argv[sys.argv.index('pgherd'):]"
    return (sys.executable, "-P", "-c", "; ".join(["import sys", *statements, text, "from pgherd.cli.main import main", "main()"]))


IMPATIENT = changed(
    "from pgherd.runtimes.vm import agent_client, virtual_machine",
    "agent_client.CALL_TIMEOUT_S, virtual_machine.BOOT_TIMEOUT_S = 15.0, 90.0",
    "from pgherd.runtimes.vm import guest_node",
    "guest_node._FETCH_SECONDS, agent_client.PING_INTERVAL_S = 2.0, 1.0",
)


def begun(pgherd, *arguments: str, through: tuple[str, ...] = ()):
    """A run without an end of its own, and its guest, which is booting."""
    process = pgherd.start_density(*_VM, *_ENDLESS, *arguments, through=through)
    (guest,) = pgherd.wait_until(lambda: pgherd.guests() if process.poll() is None else [None], pause=0.05)
    assert guest is not None, pgherd.end(process)
    return process, guest


def interrupted(pgherd, process) -> str:
    """The run's first trial has failed, and the run goes on until it is ended: why the trial failed."""
    trials = pgherd.wait_until(lambda: pgherd.trials() or process.poll() is not None, pause=0.2)
    assert trials is not True, pgherd.end(process)
    process.send_signal(signal.SIGINT)
    assert pgherd.end(process).code == 130
    return trials[0]["error"]


def test_a_guest_frozen_at_any_moment(guests, pgherd, chance):
    """Nothing hangs: not the boot, not a statement to its server, not a question to its agent."""
    process, guest = begun(pgherd, through=IMPATIENT)
    _wait(process, chance.uniform(0, LONGEST))
    os.kill(guest.pid, signal.SIGSTOP)
    error = interrupted(pgherd, process)
    text = ("does not answer", "stopped responding", "did not answer", "did not come up", "accepts no more calls", "cannot be reached")
    text += ("not ready within",)
    # libpq reports this for a server that froze between its start and the first connection.
    text += ("connection timeout expired",)
    assert "guest db01" in error or "db01/pg" in error
    assert any(message in error for message in text), error


def test_a_guest_killed_at_any_moment(guests, pgherd, chance):
    process, guest = begun(pgherd)
    _wait(process, chance.uniform(0, LONGEST))
    os.kill(guest.pid, signal.SIGKILL)
    assert "guest db01 was ended by signal 9" in interrupted(pgherd, process)


def test_a_data_disk_that_is_full(guests, pgherd, tmp_path):
    """The server cannot write any more; the run is not over for that, since the disk of this machine is not full."""
    script, init = tmp_path / "fill.sql", tmp_path / "init.sql"
    script.write_text("INSERT INTO filler SELECT g, repeat('x', 900) FROM generate_series(1, 4000) g;\n")
    init.write_text("CREATE TABLE filler (n int, x text); ALTER TABLE filler ALTER x SET STORAGE PLAIN;\n")
    small = changed("from pgherd.runner.deploy import guests as d", "d.FREE_BYTES, d.MIN_WAL_BYTES, d.FREE_PER_TEMPLATE = 8 << 20, 0, 0")
    tight = ("--set", "max_wal_size=32MB", "--set", "min_wal_size=32MB", "--set", "checkpoint_timeout=1h")
    _readable(tmp_path)
    process, _ = begun(pgherd, "--script", str(script), "--init-script", str(init), "--clients", "1", *tight, through=small)
    error = interrupted(pgherd, process)
    assert "No space left on device" in error or ("could not extend file" in error and "wrote only" in error), error  # none, or too little


def test_a_guest_that_runs_out_of_memory(guests, pgherd, tmp_path):
    """Its kernel ends the server, and not the agent that tells of it."""
    script = tmp_path / "hungry.sql"
    hungry = " + ".join(f"length(repeat('x', {size}000000 + :client_id))" for size in (100, 101, 102, 103))
    script.write_text(f"SET max_parallel_workers_per_gather = 0;\nSELECT {hungry} FROM pg_class LIMIT 1;\n")
    _readable(tmp_path)
    process, _ = begun(pgherd, "--script", str(script), "--read-only", "--clients", "2")
    error = interrupted(pgherd, process)
    assert "guest db01 ran out of memory, and its kernel killed" in error and "raise --memory" in error


def test_a_kernel_that_does_not_boot(guests, pgherd):
    broken = changed(
        "from pgherd.runtimes.vm import qemu",
        "words = qemu.kernel_command_line",
        "qemu.kernel_command_line = lambda guest: words(guest) + ' rdinit=/no/such'",
    )
    error = interrupted(pgherd, pgherd.start_density(*_VM, *_ENDLESS, through=broken))
    assert "guest db01 powered itself off while it came up; its console ends with:" in error and "Kernel panic" in error


def test_ones_own_scripts_data_files_and_volumes_reach_into_a_guest(guests, pgherd, tmp_path):
    script, other, init, rows = (tmp_path / name for name in ("mine.sql", "other.sql", "init.sql", "rows.csv"))
    rows.write_text("".join(f"{n},{n * n}\n" for n in range(500)))
    init.write_text("CREATE TABLE squares (n int PRIMARY KEY, square int);\n\\copy squares FROM 'rows.csv' (FORMAT csv)\n")
    script.write_text("\\set n random(0, 499)\nSELECT square FROM squares WHERE n = :n;\n")
    other.write_text("UPDATE squares SET square = square WHERE n = 7;\nSELECT * FROM squares ORDER BY square LIMIT 1;\n")
    for name in ("log", "scratch"):
        (tmp_path / name).mkdir()
    _readable(tmp_path)
    inputs = ("--script", f"{script}@3", "--script", str(other), "--init-script", str(init), "--clients", "1")
    placed = (
        "--wal-volume",
        str(tmp_path / "log"),
        "--temp-volume",
        str(tmp_path / "scratch"),
        "--tablespace-volume",
        str(tmp_path / "scratch"),
    )
    ended = pgherd.density(*_VM, *inputs, *placed, "--warmup", "5s", "--duration", "5s", "--vm-pin-vcpus")
    assert ended.code in (0, 1), ended
    fine = [trial for trial in pgherd.trials() if trial["error"] is None]  # a busy machine may be too slow for one of them
    assert fine, [trial["error"] for trial in pgherd.trials()]
    (phase,) = fine[0]["phases"]
    assert phase["targets"][0]["transactions"] > 0
    devices = {device["name"]: device for device in phase["io"]["devices"]}
    assert {"db01/data (QEMU)", "db01/wal (QEMU)", "db01/temp (QEMU)", "db01/space0 (QEMU)"} <= set(devices)
    roles = [next(iter(device["roles"])) for name, device in sorted(devices.items()) if name.startswith("db01/vd")]
    assert sorted(roles) == ["data", "tablespace", "tablespace", "wal"]
    wal = next(device for name, device in devices.items() if name.startswith("db01/vd") and "wal" in device["roles"])
    assert sum(wal["series"]["write_bytes"]) > 0, "WAL is written to its own disk"
    assert sum(devices["db01/wal (QEMU)"]["series"]["write_bytes"]) > 0, "and its hypervisor sees it too"
    assert not list((tmp_path / "log").iterdir()) and not list((tmp_path / "scratch").iterdir())
    assert any(
        choice.startswith("Guests run by QEMU") and "each vCPU pinned to one CPU" in choice for choice in pgherd.record()["defaults_chosen"]
    )


def _wait(process: subprocess.Popen[str], seconds: float) -> None:
    """So long, unless it ends before."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _readable(place: Path) -> None:
    """By the account that servers run as."""
    for path in (place, *place.parents):
        if str(path).startswith("/tmp/") and path.stat().st_uid == os.geteuid():
            path.chmod(0o755)
    for path in place.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
