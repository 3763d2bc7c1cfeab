from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.host.paths import free_ports
from pgherd.model.errors import UsageError
from pgherd.runtimes.vm import qemu
from pgherd.runtimes.vm.qemu import Disk, GuestFiles, GuestSpec

PLACES = GuestFiles("/run/v/qmp", "/run/v/agent", "/run/v/console", "/run/v/console.log")
GUEST = GuestSpec(
    "db01",
    "/k",
    "/i",
    "/root.ext4",
    (Disk("data", "/a,b/data.raw", "/srv/data", direct=True), Disk("wal", "/wal.raw", "/srv/wal")),
    port=7001,
)


def words(guest: GuestSpec, **extra: bool) -> list[str]:
    return qemu.arguments("qemu", guest, PLACES, **extra)


def test_a_guest_of_q35() -> None:
    argv = words(GUEST)
    assert qemu.option(argv, "-name") == "guest=pgherd-db01,debug-threads=on"
    assert qemu.option(argv, "-machine") == "q35,memory-backend=ram,mem-merge=off"
    assert qemu.option(argv, "-m") == "512M" and qemu.option(argv, "-object") == "memory-backend-ram,id=ram,size=536870912,merge=off"
    assert "if=none,id=root,format=raw,file=/root.ext4,readonly=on" in argv
    assert "if=none,id=data,format=raw,file=/a,,b/data.raw,discard=unmap,werror=report,rerror=report,cache=none,aio=threads" in argv
    assert "if=none,id=wal,format=raw,file=/wal.raw,discard=unmap,werror=report,rerror=report" in argv
    assert "virtio-blk-pci,drive=data,serial=data,addr=10.1,multifunction=on" in argv
    assert "virtserialport,bus=serial0.0,chardev=agent,name=pgherd.agent" in argv
    assert "user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:7001-:5432" in argv
    assert "virtio-net-pci,netdev=net0,romfile=" in argv, "nothing is booted over the network"
    several = replace(GUEST, port=7001, further=((7010, 5433),))
    assert "user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:7001-:5432,hostfwd=tcp:127.0.0.1:7010-:5433" in words(several)
    assert (several.ports, replace(GUEST, port=None).ports) == ((7001, 7010), ())
    assert "virtio-balloon-pci,id=balloon0,deflate-on-oom=on,free-page-reporting=on" in argv
    monitors = [argv[number + 1] for number, word in enumerate(argv) if word == "-qmp"]
    assert monitors == ["unix:/run/v/qmp,server=on,wait=off"]
    assert qemu.option(argv, "-sandbox").startswith("on,")
    assert "-sandbox" not in words(GUEST, sandbox=False)


def test_a_microvm_has_devices_without_a_bus() -> None:
    argv = words(replace(GUEST, machine="microvm", reporting=False, deflate_on_oom=False))
    assert qemu.option(argv, "-machine").startswith("microvm,") and not any("-pci" in word for word in argv)
    assert "virtio-balloon-device,id=balloon0,deflate-on-oom=off,free-page-reporting=off" in argv
    assert "virtio-net-device,netdev=net0" in argv, "which knows no such firmware"
    assert "virtio-blk-device,drive=data,serial=data" in argv


def test_the_accelerator_decides_the_processor_and_what_the_kernel_is_told() -> None:
    emulated, real = words(GUEST), words(replace(GUEST, accelerator="kvm"))
    assert qemu.option(real, "-cpu") == "host" and qemu.option(emulated, "-cpu") == "max"
    assert "mitigations=off" in qemu.kernel_command_line(GUEST)
    assert "mitigations" not in qemu.kernel_command_line(replace(GUEST, accelerator="kvm"))  # what is measured keeps them


@pytest.mark.parametrize(
    ("backing", "message"),
    [
        ("plain", "memory-backend-ram,id=ram,size=536870912,merge=on"),
        ("shared", "memory-backend-memfd,id=ram,size=536870912,merge=on,share=on"),
        ("huge", "memory-backend-memfd,id=ram,size=536870912,merge=on,share=on,hugetlb=on,hugetlbsize=2097152,prealloc=on"),
    ],
)
def test_kinds_of_memory(backing, message: str) -> None:
    assert message in words(replace(GUEST, backing=backing, merge=True))


def test_the_kernel_is_told_where_disks_belong() -> None:
    tokens = qemu.kernel_command_line(replace(GUEST, shell=True, words=("more=1",))).split()
    assert {
        "pgherd.name=db01",
        "pgherd.root=root",
        "pgherd.disk=data:/srv/data",
        "pgherd.disk=wal:/srv/wal",
        "pgherd.shell=ttyS0",
        "more=1",
    } <= set(tokens)
    assert not any(word.startswith("pgherd.shell") for word in qemu.kernel_command_line(GUEST).split())


def test_a_console_with_a_shell_is_a_socket_with_a_log() -> None:
    argv = words(replace(GUEST, shell=True))
    assert "socket,id=console,path=/run/v/console,server=on,wait=off,logfile=/run/v/console.log" in argv
    assert qemu.option(words(GUEST), "-serial") == "file:/run/v/console.log"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a b"}, "'a b' is not a valid name of a guest"),
        ({"name": "a,b"}, "is not a valid name of a guest"),
        ({"memory": 64 * 2**20}, "has 64 MB of memory; it needs at least 160 MB to boot"),
        ({"vcpus": 0}, "has 0 vCPUs"),
        ({"backing": "huge", "memory": 513 * 2**20}, "huge pages, which is not a multiple of 2 MB"),
        ({"disks": (Disk("a" * 21, "/x"),)}, "cannot be a disk's serial"),
        ({"disks": (Disk("root", "/x"),)}, "cannot be a disk's serial"),
        ({"disks": (Disk("a", "/x"), Disk("a", "/y"))}, "two disks with the same serial"),
        ({"disks": (Disk("a", "/x", "/with blank"),)}, "cannot be mounted at '/with blank'"),
        ({"disks": (Disk("a", "/x", "relative"),)}, "cannot be mounted at 'relative'"),
        ({"machine": "microvm", "disks": tuple(Disk(f"d{n}", "/x") for n in range(4))}, "needs 9 devices, and a microvm has room for 8"),
        ({"disks": tuple(Disk(f"d{n}", "/x") for n in range(41))}, "guest db01 has 41 disks, the maximum is 40; put fewer servers"),
        ({"words": ("x" * 2000,)}, "the maximum is 2047"),
    ],
)
def test_what_no_guest_can_be_like_is_refused(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        words(replace(GUEST, **change))


def test_the_mount_points_of_all_disks_fit_into_the_command_line() -> None:
    """The longest names: tablespaces of many servers."""
    labels = [f"space0-{number}" for number in range(61, 61 + qemu.MAX_DISKS)]
    replace(GUEST, name="d" * 30, disks=tuple(Disk(label, "/x", f"/srv/pgherd-{label}") for label in labels)).check()


@pytest.mark.parametrize(("machine", "count"), [("q35", 2), ("q35", qemu.MAX_DISKS), ("microvm", 2)])
def test_qemu_itself_takes_the_command_line(tmp_path: Path, machine, count: int) -> None:
    """It starts with all devices, stopped, and is told to quit."""
    program = next(filter(None, map(shutil.which, qemu.PROGRAMS)), None)
    if program is None:
        pytest.skip(f"{qemu.PROGRAMS[0]} is not installed")
    names = [f"data-{number}" for number in range(count)]
    for name in ("root.ext4", *(f"{name}.raw" for name in names)):
        (tmp_path / name).write_bytes(b"\0" * 2**20)
    disks = tuple(Disk(name, str(tmp_path / f"{name}.raw"), f"/{name}") for name in names)
    (port,) = free_ports("127.0.0.1", 1)
    guest = replace(GUEST, machine=machine, root=str(tmp_path / "root.ext4"), disks=disks, port=port, shell=True)
    argv = qemu.arguments(program, guest, GuestFiles(*(str(tmp_path / name) for name in ("q", "a", "c", "l"))), sandbox=False)
    for name in ("-kernel", "-initrd", "-append"):
        at = argv.index(name)
        del argv[at : at + 2]
    finished = subprocess.run(
        [*argv, "-S", "-monitor", "stdio"], input=b"info block\nquit\n", capture_output=True, timeout=60, cwd=tmp_path
    )
    assert finished.returncode == 0, finished.stderr.decode()
    assert all(f"{tmp_path}/{name}.raw (raw" in finished.stdout.decode() for name in names)


def test_memory_is_whole_megabytes() -> None:
    GuestSpec("a", "/k", "/i", "/r", memory=2**28).check()
    with pytest.raises(UsageError, match="has 268435457 bytes of memory, which is not a multiple of 1 MB"):
        GuestSpec("a", "/k", "/i", "/r", memory=2**28 + 1).check()
