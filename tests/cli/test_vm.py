"""The verb's words; tests/it/test_guest.py boots guests."""

from __future__ import annotations

import json

import pytest

from pgherd.cli import vm
from pgherd.cli.main import run
from pgherd.host import journal
from pgherd.model.errors import CapabilityError
from pgherd.runtimes.vm import boot_images, hypervisor, virtual_machine
from pgherd.runtimes.vm.boot_images import CachedImage
from pgherd.runtimes.vm.virtual_machine import RunningGuest

pytestmark = pytest.mark.usefixtures("own_directories")

GUEST = RunningGuest("101010-ab", 77, 2, 2**30, 300 * 2**20, 0, "tcg", 7001, "/run/v/console", ("/k", "/i", "/r"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "--pg-version", "14"], "PostgreSQL 14 is not supported"),
        (["build", "--pg-bin", "/nowhere"], "/nowhere does not hold postgres"),
        (["build", "--accel", "hvf"], "'hvf' is not one of"),
        (["boot", "--memory", "much"], "'much' is not a memory size"),
        (["boot", "--duration", "soon"], "'soon' is not a duration"),
        (["boot", "--huge-pages", "0"], " 0 is no size of a page"),
        (["boot", "--huge-pages", "2MB", "--ksm"], "leave one out"),
        (["boot", "--pin-vcpus", "--vcpus", "9999"], "a guest has 9999 vCPUs and the run"),
        (["boot", "--scale", "-1"], "-1 is not in the range"),
        (["shell"], "no guest runs"),
        (["shell", "db07"], "no guest with a console has the name 'db07'"),
        (["frob"], "No such command 'frob'"),
    ],
)
def test_bad_words_are_refused_with_one_message(words, message, capsys, monkeypatch) -> None:
    monkeypatch.setattr(virtual_machine, "running_guests", lambda node: [])
    assert run(["vm", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("pgherd: ") == 1


@pytest.mark.parametrize("words", [["build"], ["boot", "--duration", "1s"]])
def test_a_missing_hypervisor_is_exit_code_3(words, capsys, monkeypatch) -> None:
    def missing() -> str:
        raise CapabilityError("qemu-system-x86_64 is missing, which runs virtual machines; install the package qemu-system-x86")

    monkeypatch.setattr(hypervisor, "program", missing)
    assert run(["vm", *words, "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["exit_code"] == 3 and "install the package qemu-system-x86" in said.err


def test_an_empty_cache_and_no_guest(capsys, monkeypatch) -> None:
    monkeypatch.setattr(virtual_machine, "running_guests", lambda node: [])
    assert run(["vm", "list"]) == 0
    assert capsys.readouterr().out == "There are no cached images; 'pgherd vm build' builds them.\nNo guest runs.\n"
    assert run(["vm", "clean"]) == 0
    assert capsys.readouterr().out == "There are no cached images.\n"


def test_what_is_kept_and_what_runs(capsys, monkeypatch) -> None:
    monkeypatch.setattr(virtual_machine, "running_guests", lambda node: [GUEST])
    monkeypatch.setattr(
        boot_images, "list_all", lambda cache: [CachedImage("root image", "/c/root.ext4", 2**27, 1.0, "PostgreSQL 15.1 of /bin")]
    )
    assert run(["vm", "list"]) == 0
    said = capsys.readouterr().out
    assert "root image   128 MB  /c/root.ext4 (PostgreSQL 15.1 of /bin)" in said
    assert (
        "guest 101010-ab (process 77, tcg): 2 vCPU, 1 GB of memory, 300 MB resident, 0 B swapped, server on port 7001 of 127.0.0.1" in said
    )
    assert run(["vm", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pgherd/vm-list/2" and document["running"][0]["pid"] == 77 and document["cached"][0]["bytes"] == 2**27


def test_what_is_in_use_is_left(capsys, monkeypatch) -> None:
    kept = CachedImage("root image", "/r", 2**20, 1.0)
    monkeypatch.setattr(virtual_machine, "running_guests", lambda node: [GUEST])
    monkeypatch.setattr(boot_images, "clean", lambda cache, used, kernels: ([], [kept]) if "/r" in used else ([kept], []))
    assert run(["vm", "clean"]) == 0
    assert capsys.readouterr().out == "kept root image /r (1 MB): in use\n"


def test_an_active_run_keeps_all_images(capsys, monkeypatch) -> None:
    """It boots guests from them later, too."""
    kept = CachedImage("root image", "/r", 2**20, 1.0)
    monkeypatch.setattr(virtual_machine, "running_guests", lambda node: [])
    monkeypatch.setattr(boot_images, "list_all", lambda cache: [kept])
    monkeypatch.setattr(journal, "running", lambda node, state: ["20260131-120000-density-0001"])
    assert run(["vm", "clean"]) == 0
    assert capsys.readouterr().out == "kept root image /r (1 MB): in use\n"


def test_one_command_in_the_only_guest(capsys, monkeypatch) -> None:
    monkeypatch.setattr(virtual_machine, "running_guests", lambda node: [GUEST])
    monkeypatch.setattr(virtual_machine, "run_on_console", lambda path, text: (5, f"{path} {text}\n"))
    assert run(["vm", "shell", "-c", "uptime"]) == 5
    assert capsys.readouterr().out == "/run/v/console uptime\n"
    assert run(["vm", "shell", "101010-ab", "-c", "uptime", "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["output"] == "/run/v/console uptime\n"
    monkeypatch.setattr(virtual_machine, "running_guests", lambda node: [GUEST, GUEST])
    assert run(["vm", "shell", "-c", "uptime"]) == 2
    assert "name the guest" in capsys.readouterr().err


def test_help_names_all_of_it(capsys) -> None:
    assert run(["vm", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in vm.command.commands) and "build" in vm.command.commands
