from __future__ import annotations

from dataclasses import replace

from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import qemu, running
from pgherd.runtimes.vm.qemu import Disk, Guest, Places

STATUS = "Name:\tqemu-system-x86\nVmPeak:\t 1500000 kB\nVmRSS:\t  204800 kB\nVmSwap:\t    1024 kB\n"


def test_a_command_line_tells_what_runs() -> None:
    guest = Guest("db01", "/k", "/i", "/r.ext4", (Disk("data", "/a,b.raw", "/d"),), vcpus=2, memory=2**30, port=7001, shell=True)
    argv = qemu.arguments("/usr/bin/qemu-system-x86_64", guest, Places("/v/q", "/v/a", "/v/c,d", "/v/l", "/v/s"))
    found = running.parse(42, argv, STATUS)
    assert (found.name, found.pid, found.vcpus, found.memory, found.port) == ("db01", 42, 2, 2**30, 7001)
    assert (found.resident, found.swapped, found.accelerator, found.console) == (200 * 2**20, 2**20, "tcg", "/v/c,d")
    assert found.files == ("/k", "/i", "/r.ext4", "/a,b.raw")


def test_without_port_and_console() -> None:
    guest = Guest("x", "/k", "/i", "/r")
    found = running.parse(1, qemu.arguments("q", guest, Places("/q", "/a", "/c", "/l", "/s")), "")
    assert found.port is None and found.console is None and found.resident == 0


def test_looking_at_this_machine_finds_guests_of_ours_only() -> None:
    assert all(guest.pid > 1 and guest.name for guest in running.find_all(LocalNode()))


def test_a_guest_that_runs_as_another_account_is_ours_by_the_place_of_its_sockets(tmp_path) -> None:
    """Nobody else can put a directory into one of ours that only we may write."""
    ours, open_to_all = tmp_path / "ours", tmp_path / "open"
    for place, mode in ((ours, 0o711), (open_to_all, 0o777)):
        place.mkdir()
        place.chmod(mode)
    guest = Guest("x", "/k", "/i", "/r")

    def argv(place: str) -> list[str]:
        return qemu.arguments("q", guest, Places(f"{place}/v1/qmp", "/a", "/c", "/l", f"{place}/v1/asked"))

    assert running._in_place_of_ours(argv(str(ours)))
    assert not running._in_place_of_ours(argv(str(open_to_all)))
    assert not running._in_place_of_ours(["qemu-system-x86_64"])
    elsewhere = Places(f"{ours}/v1/qmp", "/a", f"{open_to_all}/v1/console", "/l", f"{ours}/v1/asked")
    assert not running._in_place_of_ours(qemu.arguments("q", replace(guest, shell=True), elsewhere))
