from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from pgherd.host import facts
from pgherd.model.host_facts import HostFacts
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed

CAPTURED = Path(__file__).parents[1] / "fixtures/host/kvm-guest"

# A bare-metal machine of two sockets with two threads per core, a mechanical and an NVMe disk (composed).
METAL = {
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz\nflags\t\t: fpu vmx ht\n",
    "/proc/meminfo": "MemTotal:       16777216 kB\nMemAvailable:   12582912 kB\nSwapTotal:       2097152 kB\nHugePages_Total:     512\n",
    "/proc/stat": "cpu  10 0 10 80 0 0 0 0 0 0\n",
    "/proc/sys/kernel/hostname": "metal\n",
    "/proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "/etc/os-release": 'NAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/sys/devices/system/cpu/smt/active": "1\n",
    "/sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
    "/sys/devices/system/node/online": "0-2\n",
    "/sys/devices/system/node/node0/cpulist": "0,2\n",
    "/sys/devices/system/node/node1/cpulist": "1,3,4\n",
    "/sys/devices/system/node/node2/cpulist": "\n",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
    "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
    "/sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": "1\n",
    "/sys/block/nvme0n1/dev": "259:0\n",
    "/sys/block/nvme0n1/size": "1000215216\n",
    "/sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline\n",
    "/sys/block/nvme0n1/queue/rotational": "0\n",
    "/sys/block/nvme0n1/queue/read_ahead_kb": "8192\n",
    "/sys/block/sda/dev": "8:0\n",
    "/sys/block/sda/size": "2048\n",
    "/sys/block/sda/queue/scheduler": "none [mq-deadline] kyber bfq\n",
    "/sys/block/sda/queue/rotational": "1\n",
    "/sys/block/sr0/dev": "11:0\n",
    "/sys/block/sr0/size": "0\n",
    **{f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": "0,2\n" if cpu % 2 == 0 else "1,3\n" for cpu in range(4)},
    **{f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor": "performance\n" for cpu in range(4)},
}


def test_captured_guest(tmp_path: Path, fake) -> None:
    shutil.copytree(CAPTURED, tmp_path, dirs_exist_ok=True)
    for controller in ("cpu", "cpuacct", "cpuset", "memory", "unified"):
        (tmp_path / "sys/fs/cgroup" / controller).mkdir(parents=True)
    found = facts.gather(fake.FakeNode(tmp_path))
    assert (found.cores, found.logical_cpus, found.physical_cores, found.smt) == (2.0, 2, 2, False)
    assert (found.numa_nodes, found.cpu_model, found.virtualisation) == (1, "AMD EPYC", "KVM")
    assert (found.governor, found.boost, found.clock_source) == (None, None, "tsc")
    assert found.memory == 24684096 * 1024
    assert (found.cgroup, found.cgroup_writable) == ("hybrid", "/sys/fs/cgroup/memory")
    assert found.transparent_huge_pages == "madvise"
    assert found.huge_pages == {"2 MB": 0, "1 GB": 0}
    assert [device.name for device in found.devices] == ["vda"]
    assert found.devices[0].scheduler == "mq-deadline"
    assert found.root is True
    assert "virtual CPU under KVM" in found.core_note


def test_bare_metal(tmp_path: Path, fake) -> None:
    found = facts.gather(fake.unified(tmp_path, "/system.slice/x.scope", files=METAL))
    assert (found.logical_cpus, found.physical_cores, found.smt, found.numa_nodes) == (4, 2, True, 2)
    assert found.cpu_nodes == (0, 1, 0, 1)
    assert (found.governor, found.boost, found.virtualisation) == ("performance", True, None)
    assert (found.memory, found.memory_available, found.swap) == (16 << 30, 12 << 30, 2 << 30)
    assert found.huge_pages == {"2 MB": 512, "1 GB": 0, "64 kB": 1}
    assert found.transparent_huge_pages == "always"
    assert [(x.name, x.number, x.size, x.scheduler, x.rotational, x.read_ahead) for x in found.devices] == [
        ("nvme0n1", "259:0", 1000215216 * 512, "none", False, 8 << 20),
        ("sda", "8:0", 1 << 20, "mq-deadline", True, None),
    ]
    assert (found.hostname, found.os, found.root) == ("metal", "Debian GNU/Linux 12 (bookworm)", False)
    assert found.cgroup == "v2"
    assert found.cgroup_writable == "/sys/fs/cgroup"
    assert found.cgroup_missing == ""


def test_a_container_has_what_its_group_leaves_it(tmp_path: Path, fake) -> None:
    node = fake.unified(tmp_path, "/", namespace=True, files=METAL, may_write="/nowhere")
    group = tmp_path / "sys/fs/cgroup"
    (group / "cpu.max").write_text("150000 100000\n")
    (group / "memory.max").write_text(str(4 << 30))
    (group / "memory.current").write_text(str(3 << 30))
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {2 << 30}\n")
    found = facts.gather(node)
    assert found.cores == 1.5
    assert found.logical_cpus == 4
    assert found.memory == 4 << 30
    assert found.memory_available == 3 << 30
    assert "1.5 of 4" in found.core_note
    assert found.cgroup_writable is None
    assert "Delegate=yes" in found.cgroup_missing
    assert not list(group.glob("pgherd-*"))


def test_a_cpuset_of_one_node_has_the_memory_of_that_node(tmp_path: Path, fake) -> None:
    """As with docker run --cpuset-mems 1: /proc/meminfo has both nodes, and the kernel ends servers by the memory of the second."""
    sizes = {"MemTotal": 128 << 20, "MemFree": 32 << 20, "Active(file)": 1 << 20, "Inactive(file)": 0}
    node = "".join(f"Node 1 {name}: {size} kB\n" for name, size in sizes.items())
    files = {
        "/proc/meminfo": "MemTotal: 268435456 kB\nMemAvailable: 200000000 kB\n",
        "/proc/self/status": "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t1\n",
        "/sys/devices/system/node/has_memory": "0-1",
        "/sys/devices/system/node/node1/meminfo": node,
    }
    found = facts.gather(fake.unified(tmp_path, "/", files=METAL | files))
    assert (found.memory, found.memory_available) == (128 * 2**30, 33 * 2**30)
    files["/proc/self/status"] = "Mems_allowed_list:\t0-1\n"
    assert facts.gather(fake.unified(tmp_path / "all", "/", files=METAL | files)).memory == 256 * 2**30


def test_an_unreadable_machine_still_has_facts(tmp_path: Path, fake) -> None:
    found = facts.gather(fake.FakeNode(tmp_path))
    assert found.cgroup == "none"
    assert found.cgroup_writable is None
    assert found.devices == ()
    assert found.page_size is None


def test_the_size_of_a_page(tmp_path: Path, fake) -> None:
    node = fake.FakeNode(tmp_path, {"/proc/self/auxv": ""})
    (tmp_path / "proc/self/auxv").write_bytes(struct.pack("6L", 16, 1, 6, 65536, 0, 0))
    assert facts.gather(node).page_size == 65536


def test_meminfo_keeps_page_counts() -> None:
    assert facts.parse_meminfo("MemTotal:  2 kB\nHugePages_Total:  7\n") == {"MemTotal": 2048, "HugePages_Total": 7}


def test_chosen() -> None:
    assert facts.chosen("a [b-c] d") == "b-c"
    assert facts.chosen("none") == "none"
    assert facts.chosen("") is None


DMI = "/sys/class/dmi/id"
CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.parametrize(
    ("flag", "files", "expected"),
    [
        (True, {f"{DMI}/sys_vendor": "QEMU\n", f"{DMI}/product_name": "Standard PC (Q35 + ICH9, 2009)\n"}, "QEMU"),
        (True, {f"{DMI}/sys_vendor": "VMware, Inc.\n", f"{DMI}/product_name": "VMware Virtual Platform\n"}, "VMware"),
        (True, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "m5.large\n"}, "Amazon EC2"),
        (True, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "m5.metal\n"}, None),
        (False, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "i3.metal\n"}, None),
        (None, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "m6g.large\n"}, "Amazon EC2"),
        (None, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "c8g.metal-24xl\n"}, None),
        (True, {f"{DMI}/sys_vendor": "Microsoft Corporation\n", f"{DMI}/product_name": "Virtual Machine\n"}, "Microsoft Hyper-V"),
        (True, {f"{DMI}/sys_vendor": "Nutanix\n", f"{DMI}/product_name": "AHV\n"}, "Nutanix AHV"),
        (True, {f"{DMI}/sys_vendor": "Google\n", f"{DMI}/product_name": "Google Compute Engine\n"}, "Google Compute Engine (KVM)"),
        (True, {"/sys/hypervisor/type": "xen\n"}, "Xen"),
        (False, {"/sys/hypervisor/type": "xen\n", "/proc/xen/capabilities": "control_d\n"}, "Xen (control domain)"),
        (False, {f"{DMI}/sys_vendor": "Dell Inc.\n", f"{DMI}/product_name": "PowerEdge R740\n", CLOCKS: "tsc hpet acpi_pm \n"}, None),
        (True, {CLOCKS: "tsc kvm-clock \n"}, "KVM"),
        (True, {CLOCKS: "tsc hyperv_clocksource_tsc_page \n"}, "Microsoft Hyper-V"),
        (True, {}, "unknown hypervisor"),
        (None, {}, None),
    ],
)
def test_hypervisor_of(tmp_path: Path, fake, flag: bool | None, files: dict[str, str], expected: str | None) -> None:
    assert facts.hypervisor_of(fake.FakeNode(tmp_path, files), flag) == expected


# ---- facts for recommendations


FACTS = HostFacts(hostname="h", kernel="6", cores=1, logical_cpus=1, memory=2**30, virtualisation="KVM", clock_source="tsc")


def guest(fake):
    """A node whose links to drivers lead where those of virtio do."""

    class Guest(fake.FakeNode):
        def run(self, command, timeout=60.0):
            driver = "virtio_blk" if "/block/" in command.argv[-1] else "virtio_net"
            return Completed(0, f"/sys/bus/virtio/drivers/{driver}\n", "")

    return Guest


def test_what_a_guest_shows_is_read(fake, tmp_path):
    node = guest(fake)(
        tmp_path,
        {
            "/sys/block/vda/device/driver/x": "",
            "/sys/block/vda/queue/scheduler": "mq-deadline [none] bfq\n",
            "/sys/block/loop0/queue/scheduler": "[none]\n",
            "/sys/class/net/eth0/device/driver/x": "",
            "/sys/class/net/lo/x": "",
            "/sys/bus/virtio/drivers/virtio_balloon/bind": "",
            "/sys/bus/virtio/drivers/virtio_balloon/virtio0/uevent": "",
            "/proc/sys/vm/swappiness": "60\n",
            "/proc/sys/vm/dirty_background_bytes": "0\n",
            "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet \n",
        },
    )
    found = facts.read_advice_facts(node, FACTS)
    assert [(disk.name, disk.driver, disk.schedulers) for disk in found.disks] == [("vda", "virtio_blk", ("none", "mq-deadline", "bfq"))]
    assert [(card.name, card.driver) for card in found.cards] == [("eth0", "virtio_net")]
    assert found.balloon == "virtio_balloon" and found.knobs == {"swappiness": 60, "dirty_background_bytes": 0}
    assert found.clock_sources == ("tsc", "hpet")


def test_a_driver_without_a_device_is_no_balloon(fake, tmp_path):
    node = fake.FakeNode(tmp_path, {"/sys/bus/virtio/drivers/virtio_balloon/bind": "", "/sys/bus/virtio/drivers/virtio_balloon/uevent": ""})
    assert facts.read_advice_facts(node, FACTS).balloon == ""


def test_nothing_to_be_seen_is_no_error(fake, tmp_path):
    found = facts.read_advice_facts(fake.FakeNode(tmp_path, {}), FACTS)
    assert found.disks == () and found.balloon is None and found.knobs == {}


def test_this_machine_is_read_without_complaint():
    found = facts.read_advice_facts(LocalNode(), FACTS)
    assert "swappiness" in found.knobs
    assert isinstance(facts.disks_below(LocalNode(), "/"), tuple)
    assert facts.disks_below(LocalNode(), "/nonexistent") == ()
