from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgherd.cli import doctor
from pgherd.cli.doctor import vm_check
from pgherd.cli.main import run
from pgherd.host import netns
from pgherd.model.errors import CapabilityError
from pgherd.model.host_facts import BlockDevice, HostFacts
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.runtimes.vm import disk_image, hypervisor, initramfs, kernel
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.kernel import Kernel
from pgherd.studies.disk import prepare as disk
from pgherd.studies.network import prepare as network
from pgherd.study.study import Study, StudyCapability, studies

FACTS = HostFacts(
    hostname="metal",
    kernel="6.1.0",
    os="Debian GNU/Linux 12",
    cores=6,
    logical_cpus=8,
    physical_cores=4,
    smt=True,
    numa_nodes=2,
    cpu_model="A CPU",
    governor="performance",
    boost=True,
    clock_source="tsc",
    core_note="A core is one of 2 hardware threads.",
    memory=16 << 30,
    memory_available=8 << 30,
    huge_pages={"2 MB": 512},
    transparent_huge_pages="madvise",
    cgroup="v2",
    cgroup_writable="/sys/fs/cgroup",
    devices=(BlockDevice(name="sda", number="8:0", size=1 << 40, scheduler="none", rotational=False),),
)
POSTGRES = [Installation(bin="/usr/lib/postgresql/17/bin", version="17.2", major=17, kind="system")]
NO_CGROUPS = FACTS.model_copy(update={"cgroup_writable": None, "cgroup_missing": "start it with systemd-run"})


def test_host_lines() -> None:
    lines = dict(doctor.host_lines(FACTS))
    assert lines["cores"] == "6 of 8 CPUs usable, 4 physical cores, SMT on, 2 NUMA nodes: A CPU"
    assert lines["virtualisation"] == "none detected (bare metal)"
    assert lines["clock"] == "source tsc, governor performance, boost on"
    assert lines["memory"] == "16 GB, 8 GB available"
    assert lines["swap"] == "none"
    assert lines["huge pages"] == "reserved 2 MB: 512; transparent: madvise"
    assert lines["block devices"] == "sda (8:0): 1 TB, scheduler none"
    assert lines["cgroups"] == "v2, writable below /sys/fs/cgroup"
    assert lines[""] == FACTS.core_note


def test_what_can_not_be_seen_is_said() -> None:
    lines = dict(doctor.host_lines(HostFacts(hostname="h", kernel="k", cores=1, logical_cpus=1, memory=1)))
    assert "boost not visible" in lines["clock"]
    assert "governor not visible" in lines["clock"]
    assert lines["block devices"] == "none visible"


def server_studies(facts: HostFacts, missing: str = "") -> dict[str, StudyCapability]:
    """The studies that start servers, by name."""
    return {one.study: one for one in doctor.study_capabilities(LocalNode(), facts, missing) if studies()[one.study].needs_server}


def test_a_host_that_can_do_everything() -> None:
    as_root = FACTS.model_copy(update={"root": True})
    found = {name: (x.status, x.missing) for name, x in server_studies(as_root).items()}
    assert {"density", "compare", "database-size"} <= set(found) and set(found.values()) == {("available", "")}


def test_without_cgroups_density_says_what_is_missing() -> None:
    found = server_studies(NO_CGROUPS)
    for study in ("density", "compare"):
        assert (found[study].status, found[study].missing) == ("limited", "start it with systemd-run")
    assert "without quota" in found["density"].capability and "limits" not in found["compare"].capability


@pytest.mark.parametrize(
    ("changes", "able", "more"),
    [
        ({"root": True}, "available", ""),
        ({}, "limited", "run pgherd as root"),
        ({"huge_pages": {"2 MB": 0, "1 GB": 0}}, "unavailable", "run pgherd as root"),
        ({"huge_pages": {}, "transparent_huge_pages": None, "root": True}, "unavailable", "a kernel with huge pages"),
    ],
)
def test_huge_pages_need_a_kernel_and_root(changes: dict[str, object], able: str, more: str) -> None:
    found = server_studies(FACTS.model_copy(update=changes))["hugepages"]
    assert found.status == able and more in found.missing


def test_without_servers_the_studies_that_need_one_are_unavailable() -> None:
    for name, ability in server_studies(FACTS, "make an account").items():
        assert (ability.status, ability.missing) == ("unavailable", "make an account"), name
    found = {one.study: one.status for one in doctor.study_capabilities(LocalNode(), FACTS, "make an account")}
    assert found["exec"] == found["compression"] == "available"


def test_a_study_that_needs_cgroups_is_unavailable_without(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(package="p", name="one", help="h", request="", resolved="", capability="what it measures", without_cgroups=None)
    monkeypatch.setattr(doctor, "studies", lambda: {"one": study})
    assert doctor.study_capabilities(LocalNode(), FACTS, "") == [StudyCapability("one", "available", "what it measures")]
    assert doctor.study_capabilities(LocalNode(), NO_CGROUPS, "") == [
        StudyCapability("one", "unavailable", "what it measures", "start it with systemd-run")
    ]


@pytest.mark.parametrize(
    ("fio", "root", "able", "more"),
    [
        ("/bin/fio", True, "available", ""),
        ("/bin/fio", False, "limited", "as root for loop devices"),
        (None, True, "unavailable", "install the package fio"),
    ],
)
def test_disks_need_fio_but_no_server(monkeypatch: pytest.MonkeyPatch, fio: str | None, root: bool, able: str, more: str) -> None:
    monkeypatch.setattr(disk.shutil, "which", lambda name: fio)
    found = disk.capability(LocalNode(), FACTS.model_copy(update={"root": root}))
    assert found.status == able and more in found.missing


def test_limits() -> None:
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max processes             96365                unlimited            processes \n"
        "Max open files            1024                 524288               files     \n"
    )
    assert doctor.parse_limits(text) == {"open files": {"soft": 1024, "hard": 524288}, "processes": {"soft": 96365, "hard": None}}


def test_versions(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho 'fio-3.33'\n")
    tool.chmod(0o755)
    node = LocalNode()
    assert doctor.version_of(node, (str(tool), "--version")) == "3.33"
    assert doctor.version_of(node, (str(tmp_path / "missing"), "--version")) is None
    assert doctor.version_of(node, ("false",)) is None


def cgroups() -> list[str]:
    return [path for path, names, _ in os.walk("/sys/fs/cgroup") if "pgherd-probe" in path]


def test_json_is_one_document_and_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pgherd/doctor/2"
    HostFacts.model_validate(document["host"])
    assert set(document) == {"schema", "host", "postgres", "tools", "limits", "user", "disk_free", "studies", "warnings"}
    assert set(studies()) <= {one["study"] for one in document["studies"]}
    assert [path for path in cgroups() if path.endswith(f"-{os.getpid()}")] == []


def test_the_page_for_people() -> None:
    result = CliRunner().invoke(doctor.command, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    for heading in ("cores", "memory", "virtualisation", "cgroups", "huge pages", "block devices", "PostgreSQL", "limits", "density"):
        assert heading in result.output
    assert max(map(len, result.output.splitlines())) <= 100


def test_which_swap_a_run_could_have(monkeypatch: pytest.MonkeyPatch) -> None:
    from pgherd.host import swap
    from pgherd.model.errors import CapabilityError

    refused: set[str] = set()

    def check(node: object, wanted: object) -> None:
        if wanted.kind in refused:  # type: ignore[attr-defined]
            raise CapabilityError(f"no {wanted.kind} here")  # type: ignore[attr-defined]

    monkeypatch.setattr(swap, "check", check)
    found = doctor.swap_check(LocalNode())
    assert (found.status, found.missing) == ("available", "") and found.capability.endswith("zram, file")
    refused.add("zram")
    assert (doctor.swap_check(LocalNode()).status, doctor.swap_check(LocalNode()).missing) == ("limited", "no zram here")
    refused.add("file")
    found = doctor.swap_check(LocalNode())
    assert found.status == "unavailable" and found.capability.endswith("none")


def test_no_markup_is_printed(capsys):
    assert run(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "Studies on this host" in printed and "[/]" not in printed and "[green]" not in printed


def values(check: StudyCapability) -> tuple[str, str, str]:
    return check.status, check.capability, check.missing


def test_without_iperf3_there_is_no_network(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    status, _, missing = values(network.capability(LocalNode(), FACTS))
    assert status == "unavailable" and "install the package iperf3" in missing


def test_without_namespaces_there_are_other_hosts(monkeypatch):
    def refuse(node):
        raise CapabilityError("need root")

    monkeypatch.setattr(network, "_iperf3", lambda node: "3.12")
    monkeypatch.setattr(netns, "require_root", refuse)
    assert values(network.capability(LocalNode(), FACTS))[::2] == ("limited", "need root")


@pytest.fixture
def virtual_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypervisor, "program", lambda: "/usr/bin/qemu-system-x86_64")
    monkeypatch.setattr(disk_image, "mkfs", lambda: "/sbin/mkfs.ext4")
    monkeypatch.setattr(initramfs, "busybox", lambda: "/bin/busybox")
    monkeypatch.setattr(kernel, "present", lambda cache: Kernel("/k", "6.1", "/m", "installed"))
    monkeypatch.setattr(hypervisor, "find", lambda *_: Hypervisor("q", "7.2", True, "kvm"))


@pytest.mark.usefixtures("virtual_machines")
def test_with_kvm() -> None:
    assert values(vm_check(LocalNode())) == (
        "available",
        "databases in virtual machines, by QEMU 7.2 with KVM and Linux 6.1 (installed)",
        "",
    )


@pytest.mark.usefixtures("virtual_machines")
def test_by_emulation_it_is_functional_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypervisor, "find", lambda *_: Hypervisor("q", "7.2", True, "tcg", "no device"))
    check = vm_check(LocalNode())
    assert check.status == "limited" and "functional only" in check.capability and check.missing == "KVM: no device"


@pytest.mark.usefixtures("virtual_machines")
def test_without_a_kernel_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "present", lambda cache: None)
    assert "'pgherd vm build' downloads a kernel" in vm_check(LocalNode()).missing


@pytest.mark.usefixtures("virtual_machines")
def test_all_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CapabilityError("no mkfs")

    monkeypatch.setattr(disk_image, "mkfs", missing)
    monkeypatch.setattr(initramfs, "busybox", missing)
    assert values(vm_check(LocalNode())) == ("unavailable", "databases in virtual machines", "no mkfs; no mkfs")
