"""`pgherd disk` with the real fio: a short run, what it leaves, what `show --repro-script` prints, and what is left after kill -9.

The numbers mean nothing on a busy machine; that they were counted, and that nothing is left, does.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")

FINE = (0, 1)
"""Exit codes of a run that came to its end: 1 says only that its numbers are tainted."""
SHORT = (
    "--threshold",
    "min_overlap=0.1",
    "--repeats",
    "1",
    "--duration",
    "1s",
    "--warmup",
    "1s",
    "--file-size",
    "32MB",
    "--no-double-iodepth",
)


@pytest.fixture
def volume(pgherd) -> Path:
    """Somebody's directory, with something in it, that every account can enter."""
    path = Path(tempfile.mkdtemp(prefix="disk-", dir=pgherd.root))
    path.chmod(0o755)
    (path / "precious").write_text("do not touch")
    return path


def _mounted(place: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(place) in line]


def _loading(place: Path) -> bool:
    """Whether a fio makes its load on a volume there: one of its processes has used CPU."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"--rw=randwrite" in (text := (process / "cmdline").read_bytes()) and os.fsencode(place) in text:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if int(fields[11]) + int(fields[12]) > 0.2 * os.sysconf("SC_CLK_TCK"):
                    return True
    return False


def test_a_volume_is_measured_and_left_as_it_was(pgherd, volume):
    ended = pgherd("disk", "--volume", f"data={volume}", *SHORT, "--tests", "random-read,mix", "--rate-iops", "40,20", "--json")
    assert ended.code in FINE, ended
    document = json.loads(ended.out)
    assert document["schema"] == "pgherd/disk/2" and document["findings"]["random_read_iops"]["value"] > 0
    assert {row["test"] for row in document["tables"]["summary"]} == {
        "8 kB random read",
        "8 kB random reads and writes at fixed rates",
    }
    assert document["findings"]["random_read_iops"]["published"].startswith("1,160,551 IOPS")
    devices = [row for row in document["tables"].get("io", []) if row["roles"] == "volume data"]
    number = volume.stat().st_dev
    visible = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists()
    assert bool(devices) == visible, document["warnings"]
    assert any("volume data is on no visible block device" in warning for warning in document["warnings"]) != visible
    assert os.listdir(volume) == ["precious"]
    record = pgherd.record()
    assert record["postgres"] == {} and record["tools"]["fio"] and (pgherd.run / "report.html").is_file()
    shown = pgherd("show", "last", "1", "--repro-script")
    assert shown.code == 0 and "--name=load" in shown.out
    assert subprocess.run(["sh", "-n"], input=shown.out, text=True, capture_output=True).stderr == ""
    pgherd.nothing_left()
    pgherd.ended_well(ended)


def test_killed_with_a_loop_volume_mounted_clean_takes_all_of_it_away(pgherd, volume):
    if os.geteuid() != 0:
        pytest.skip("loop volumes need root")
    if subprocess.run(["losetup", "--find"], capture_output=True).returncode:
        pytest.skip("no loop device can be had here")
    arguments = (
        "--tests",
        "random-write",
        "--file-size",
        "32MB",
        "--duration",
        "300s",
        "--warmup",
        "0s",
        "--repeats",
        "1",
        "--yes",
        "--no-report",
    )
    process = pgherd.start("disk", "--volume", f"loop:96MB@{volume}", *arguments)
    try:
        pgherd.wait_until(lambda: process.poll() is not None or _loading(volume))
        if process.poll() is not None:
            pytest.skip(f"no loop volume can be had here: {pgherd.end(process)}")
        assert _mounted(volume)
    finally:
        process.send_signal(signal.SIGKILL)
        ended = pgherd.end(process)
    assert ended.code == -signal.SIGKILL
    cleaned = pgherd("clean")
    assert cleaned.code == 0 and "unmounted" in cleaned.out + cleaned.err, cleaned
    assert _mounted(volume) == [] and os.listdir(volume) == ["precious"]
    loops = subprocess.run(["losetup", "--noheadings", "--output", "BACK-FILE"], capture_output=True, text=True).stdout
    assert str(volume) not in loops
    pgherd.nothing_left()


def test_a_device_is_not_formatted_without_its_name_being_typed(pgherd, volume):
    if os.geteuid() != 0:
        pytest.skip("loop devices need root")
    image = volume.with_suffix(".img")
    with open(image, "wb") as file:
        file.truncate(96 * 2**20)
    finished = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True)
    if finished.returncode:
        pytest.skip("no loop device can be had here")
    device = finished.stdout.strip()
    try:
        ended = pgherd("disk", "--volume", f"device:{device}", "--allow-format", device, *SHORT, "--yes")
        assert ended.code == 2 and "confirmed by typing its name" in ended.message
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        ended = pgherd("disk", "--volume", f"device:{device}", "--allow-format", device, *SHORT, "--yes")
        assert ended.code == 2 and "holds ext4; it is not formatted" in ended.message
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_every_part_of_a_server_on_a_volume_of_its_own(pgherd, volume):
    places = {}
    for name in ("data", "wal", "temp", "one", "two"):
        places[name] = volume / name
        places[name].mkdir(mode=0o755)
    arguments = [word for role in ("data", "wal", "temp") for word in (f"--{role}-volume", str(places[role]))]
    arguments += ["--tablespace-volume", str(places["one"]), "--tablespace-volume", str(places["two"]), "--partitions", "2"]
    observed: dict[str, set[str]] = {name: set() for name in places}
    process = pgherd.start_density("--databases", "1", *arguments)

    def look() -> bool:
        for name, location in places.items():
            # Not Path.glob, which fails where a directory is taken away under it.
            observed[name].update(Path(path).name for path in glob.glob(f"{location}/pgherd-volume-*/*/*"))
            if glob.glob(f"{location}/pgherd-volume-*/*/space/PG_*/*/*"):
                observed[name].add("relations")
        return process.poll() is not None

    pgherd.wait_until(look, pause=0.05)
    ended = pgherd.end(process)
    assert ended.code in FINE, ended
    assert "data" in observed["data"] and "pg_wal" in observed["wal"] and "temp" in observed["temp"]
    assert "relations" in observed["one"] and "relations" in observed["two"]
    server = pgherd.trials()[-1]["trial"]["deployment"]["hosts"][0]["containers"][0]["servers"][0]
    assert server["volumes"] == {"data": "on-data", "wal": "on-wal", "temp": "on-temp"} and server["tablespaces"] == ["space0", "space1"]
    assert server["databases"][0]["partitions"] == 2
    assert pgherd.record()["settings"].get("temp_tablespaces") == "pgherd_temp"
    assert all(not list(path.iterdir()) for path in places.values())
    pgherd.nothing_left()
    repeated(pgherd, places)


def repeated(pgherd, places):
    """The script of the trial puts all parts there again, and takes them away."""
    shown = pgherd("show", "last", "1", "--repro-script")
    assert shown.code == 0, shown
    lines = shown.out.splitlines()
    # What lies where is noted by the script itself, before it begins to load.
    listed = 'find "$DIR_on_data"/* "$DIR_on_wal"/* "$DIR_on_temp"/* "$DIR_space0"/* "$DIR_space1"/* >&2'
    lines.insert(next(number for number, line in enumerate(lines) if line.startswith("# Phase")), listed)
    (path := pgherd.root / "all parts again").mkdir()
    path.chmod(0o1777)
    for item in places.values():
        item.chmod(0o1777)
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(path)}
    finished = subprocess.run(["sh"], input="\n".join(lines), env=environment, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0 and "sum: " in finished.stdout, finished.stderr
    for name, expected in (("data", "/data/base/"), ("wal", "/pg_wal/"), ("temp", "/PG_"), ("one", "/PG_"), ("two", "/PG_")):
        assert re.search(rf"^{re.escape(str(places[name]))}/repeat-\w+{expected}", finished.stderr, re.MULTILINE), (name, finished.stderr)
    for name in ("one", "two"):
        assert re.search(rf"^{re.escape(str(places[name]))}/repeat-\w+/PG_\w+/\d+/\d+$", finished.stderr, re.MULTILINE), (
            "it holds a relation"
        )
    assert not [remaining for element in (path, *places.values()) for remaining in element.iterdir()]
