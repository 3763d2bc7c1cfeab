from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import CapabilityError
from pgherd.runtimes.vm import initramfs, qemu
from pgherd.runtimes.vm.kernel import Kernel
from pgherd.runtimes.vm.qemu import Disk, GuestSpec

ENTRIES = [
    ("bin", stat.S_IFDIR | 0o755, b""),
    ("bin/program", stat.S_IFREG | 0o755, b"#!/bin/sh\n"),
    ("bin/link", stat.S_IFLNK | 0o777, b"program"),
    ("a file", stat.S_IFREG | 0o600, b"12345"),
]


def listed(archive: bytes, directory: Path) -> str:
    tool = shutil.which("cpio")
    command = [tool] if tool else [shutil.which("busybox") or pytest.skip("neither cpio nor busybox is here"), "cpio"]
    return subprocess.run([*command, "-idm"], input=archive, cwd=directory, capture_output=True, check=True).stderr.decode()


def test_an_independent_tool_unpacks_the_archive(tmp_path: Path) -> None:
    listed(initramfs.cpio(ENTRIES), tmp_path)
    assert (tmp_path / "bin/link").read_bytes() == b"#!/bin/sh\n" and (tmp_path / "bin/link").is_symlink()
    assert (tmp_path / "a file").read_bytes() == b"12345" and stat.S_IMODE((tmp_path / "a file").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "bin/program").stat().st_mode) == 0o755


def read(archive: bytes) -> list[tuple[str, int, bytes]]:
    """A reader by the format's description: header of 13 numbers of 8 hexadecimal digits, name, data, each padded to four bytes."""
    result, at = [], 0
    while True:
        assert archive[at : at + 6] == b"070701"
        numbers = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        name = archive[at + 110 : at + 110 + numbers[11] - 1].decode()
        begin = at + (110 + numbers[11] + 3) // 4 * 4
        at = begin + (numbers[6] + 3) // 4 * 4
        if name == "TRAILER!!!":
            assert at == len(archive)
            return result
        result.append((name, numbers[1], archive[begin : begin + numbers[6]]))


@given(st.lists(st.tuples(st.text("abc/é.", min_size=1, max_size=9), st.integers(0, 0o177777), st.binary(max_size=20)), max_size=5))
def test_what_goes_in_comes_out(entries: list[tuple[str, int, bytes]]) -> None:
    assert read(initramfs.cpio(entries)) == entries


def test_the_archive_holds_modules_in_order_and_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = tmp_path / "modules"
    (modules / "kernel").mkdir(parents=True)
    (modules / "kernel/b.ko").write_bytes(b"\0depends=a\0")
    (modules / "kernel/a.ko").write_bytes(b"\0depends=\0")
    program = tmp_path / "busybox"
    program.write_bytes(b"program")
    monkeypatch.setattr(initramfs, "busybox", lambda: str(program))
    entries = {
        name: data for name, _, data in read(initramfs.archive(Kernel("", "1", str(modules), "installed"), ["b"], files={"more": b"x"}))
    }
    assert entries["modules/order"] == b"a\nb\n" and entries["bin/sh"] == b"busybox" and entries["more"] == b"x"
    assert b"pgherd.root=" in entries["init"] and entries["init"].startswith(b"#!/bin/sh\n")


def test_a_busybox_with_libraries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shutil.which("sh")
    monkeypatch.setattr(initramfs.shutil, "which", lambda name: shell)
    with pytest.raises(CapabilityError, match="needs shared libraries.*busybox-static"):
        initramfs.busybox()
    monkeypatch.setattr(initramfs.shutil, "which", lambda name: None)
    with pytest.raises(CapabilityError, match="busybox is missing"):
        initramfs.busybox()


def test_the_initramfs_script_is_one_that_a_shell_accepts() -> None:
    subprocess.run(["sh", "-n"], input=initramfs._INITRAMFS_SCRIPT.encode(), check=True)


def test_the_script_is_one_that_a_shell_accepts() -> None:
    subprocess.run(["sh", "-n"], input=initramfs.INIT.encode(), check=True)


def test_a_disk_is_found_by_its_serial_without_a_process_for_each(tmp_path: Path) -> None:
    """A guest has up to forty disks, and an emulated processor starts processes slowly."""
    for name, serial in (("vda", "root"), ("vdb", "data"), ("vdc", "data-2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "serial").write_text(serial)
    begin, end = initramfs.INIT.index("disk() {"), initramfs.INIT.index("shell=\n")
    stubs = 'mkdir() { :; }; mount() { echo "$3 $4"; }; cat() { echo "a process"; }; stop() { echo "$*"; }\n'
    calls = "disk data /srv/d; disk data-2 /srv/d-2; disk none /srv/n\n"
    script = stubs + initramfs.INIT[begin:end].replace("/sys/block", str(tmp_path)) + calls
    shown = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["/dev/vdb /srv/d", "/dev/vdc /srv/d-2", "disk none cannot be mounted at /srv/n"]


def test_the_words_that_the_kernel_is_told_are_understood() -> None:
    """The loop over the kernel's command line, taken out of the script, with its commands as echoes."""
    begin, end = initramfs.INIT.index("shell=\n"), initramfs.INIT.index("ip link set lo up")
    loop = initramfs.INIT[begin:end].replace("$(cat /proc/cmdline)", "$WORDS")
    guest = GuestSpec(
        "db01", "/k", "/i", "/r", (Disk("data", "/x", "/srv/data"), Disk("wal", "/y", "/srv/w:al"), Disk("spare", "/z")), shell=True
    )
    script = f'hostname() {{ echo "name $1"; }}\ndisk() {{ echo "disk $1 at $2"; }}\n{loop}\necho "shell $shell"'
    finished = subprocess.run(
        ["sh", "-c", script], env={"WORDS": qemu.kernel_command_line(guest)}, capture_output=True, text=True, check=True
    )
    assert finished.stdout.splitlines() == ["name db01", "disk data at /srv/data", "disk wal at /srv/w:al", "shell ttyS0"]
