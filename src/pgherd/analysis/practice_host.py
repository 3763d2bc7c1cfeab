"""Good practice for a host of databases (E17, and PostgreSQL's documentation): facts in, advice out. Pure; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.model.practice import Advice, HostPractice, Outcome, Part
from pgherd.model.units import format_bytes

E17 = "E17"
POSTGRES = "PostgreSQL documentation, chapter 'Managing Kernel Resources'"
KERNEL = "Linux documentation, admin-guide/sysctl/vm"

PLAIN_SCHEDULERS = ("none", "noop")
PARAVIRTUAL_DISKS = ("virtio_blk", "virtio_scsi", "vmw_pvscsi", "pvscsi", "xen-blkfront", "vbd", "hv_storvsc", "storvsc_host", "nvme")
"""As the kernel calls them: of a disk's driver, of a SCSI disk the host adapter's proc_name."""
PARAVIRTUAL_CARDS = ("virtio_net", "vmxnet3", "xen-netfront", "vif", "hv_netvsc", "ena", "gve", "mana")
EMULATED_CARDS = ("e1000", "e1000e", "8139cp", "8139too", "pcnet32", "ne2k-pci", "rtl8139")
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter")
MOST_SWAPPINESS = 10
MOST_BACKGROUND = 2**30
"""Bytes of dirty pages that may gather before the kernel begins to write them back."""


def host_advice(host: HostPractice) -> list[Advice]:
    """All checks of a host, in a fixed order."""
    return [
        *_schedulers(host),
        *_drivers(host),
        _disks_are_whole(host),
        _balloon(host),
        _swappiness(host),
        _overcommit(host),
        _dirty(host),
        _transparent(host),
        _governor(host),
        _clock(host),
    ]


def _advice(check: str, outcome: Outcome, found: str, wanted: str, why: str, command: str = "", source: str = E17) -> Advice:
    needs = outcome in ("change", "consider")
    return Advice(
        check=check, about="host", outcome=outcome, found=found, wanted=wanted, why=why, command=command if needs else "", source=source
    )


def _schedulers(host: HostPractice) -> Iterator[Advice]:
    why = "The hypervisor and the storage below it order requests again; a scheduler in the guest only adds CPU and delay"
    if host.virtualisation is None:
        return
    if not host.disks:
        yield _advice("io-scheduler", "unknown", "no disk is visible", "none (or noop) on virtual disks", why)
    for disk in host.disks:
        used = disk.schedulers[0] if disk.schedulers else ""
        outcome: Outcome = "unknown" if not used else "ok" if used in PLAIN_SCHEDULERS else "change"
        plain = next((name for name in PLAIN_SCHEDULERS if name in disk.schedulers), "none")
        command = f'echo {plain} > /sys/block/{disk.name}/queue/scheduler   # to keep it, a udev rule: ATTR{{queue/scheduler}}="{plain}"'
        found = f"{disk.name}: {used}" if used else f"{disk.name}: not visible"
        yield _advice("io-scheduler", outcome, found, "none (or noop) on virtual disks", why, command)


def _drivers(host: HostPractice) -> Iterator[Advice]:
    if host.virtualisation is None:
        return
    why = "An emulated device costs exits to the hypervisor for every request; a paravirtual one hands over many at once"
    command = f"give the machine virtio (KVM, AHV), PVSCSI and VMXNET3 (VMware) devices in {host.virtualisation}'s settings"
    for what, parts, good in (("disk", host.disks, PARAVIRTUAL_DISKS), ("network", host.cards, PARAVIRTUAL_CARDS)):
        for part in parts:
            yield _advice(
                "paravirtual-driver", _paravirtual(part, good), f"{what} {part.name}: {part.driver or 'driver not visible'}",
                f"one of {', '.join(good[:4])} …", why, command,
            )  # fmt: skip


def _paravirtual(part: Part, good: tuple[str, ...]) -> Outcome:
    if not part.driver:
        return "unknown"
    return "ok" if part.driver in good else "change" if part.driver in EMULATED_CARDS or good is PARAVIRTUAL_DISKS else "consider"


def _disks_are_whole(host: HostPractice) -> Advice:
    why = (
        "A thin disk is given its blocks at the first write, which then takes longer: once for all of the disk, and in the middle of a load"
    )
    wanted = "thick, eagerly zeroed virtual disks"
    if host.virtualisation is None:
        return _advice("thick-disks", "ok", "no virtual disks: this is no virtual machine", wanted, why)
    return _advice("thick-disks", "unknown", "not visible from inside a virtual machine: look at the hypervisor's settings", wanted, why)


def _balloon(host: HostPractice) -> Advice:
    wanted = "the hypervisor's balloon present where memory may be overcommitted"
    why = "Without it a host short of memory swaps the guest's pages by itself, and picks them blindly; the balloon lets the guest choose"
    if host.virtualisation is None:
        return _advice("balloon", "ok", "no virtual machine", wanted, why)
    if host.balloon is None:
        return _advice("balloon", "unknown", "not visible", wanted, why)
    if host.balloon:
        return _advice("balloon", "ok", f"{host.balloon} has a device", wanted, why)
    command = "add a balloon device (KVM: <memballoon model='virtio'/>), or install the hypervisor's guest tools"
    return _advice("balloon", "consider", "no balloon device", wanted, why, command)


def _sysctl(name: str, value: int | str) -> str:
    return f"sysctl -w vm.{name}={value}   # to keep it: a line vm.{name} = {value} in /etc/sysctl.d/60-postgresql.conf"


def _swappiness(host: HostPractice) -> Advice:
    value = host.knobs.get("swappiness")
    why = "Shared buffers look idle to the kernel while they wait for their turn; swapped out, every later hit on them is a disk read"
    wanted = f"at most {MOST_SWAPPINESS}"
    if value is None:
        return _advice("swappiness", "unknown", "not visible", wanted, why, source=KERNEL)
    if host.swap == 0:
        return _advice("swappiness", "ok", f"{value}, and there is no swap", wanted, why, source=KERNEL)
    outcome: Outcome = "ok" if value <= MOST_SWAPPINESS else "consider"
    found = f"{value}, with {format_bytes(host.swap)} of swap"
    return _advice("swappiness", outcome, found, wanted, why, _sysctl("swappiness", 1), KERNEL)


def _overcommit(host: HostPractice) -> Advice:
    value = host.knobs.get("overcommit_memory")
    why = "With 0 or 1 the kernel promises memory that it does not have, and ends a server process (and so the server) when it is claimed"
    wanted = "2 (strict) on a host that is there for databases"
    if value is None:
        return _advice("overcommit", "unknown", "not visible", wanted, why, source=POSTGRES)
    ratio = host.knobs.get("overcommit_ratio")
    with_ratio = f", overcommit_ratio {ratio} %" if value == 2 and ratio is not None else ""
    command = _sysctl("overcommit_memory", 2) + "; set vm.overcommit_ratio too: swap + that share of RAM is all there is to give"
    return _advice("overcommit", "ok" if value == 2 else "consider", f"{value}{with_ratio}", wanted, why, command, POSTGRES)


def _dirty(host: HostPractice) -> Advice:
    why = "What gathers is written at once when a checkpoint syncs its files: the WAL's writes wait behind it"
    wanted = f"write-back begins at {format_bytes(MOST_BACKGROUND)} or less"
    size, share = host.knobs.get("dirty_background_bytes", 0), host.knobs.get("dirty_background_ratio")
    if not size and share is None:
        return _advice("dirty-pages", "unknown", "not visible", wanted, why, source=KERNEL)
    gathers = size or (share or 0) * host.memory // 100
    said = f"dirty_background_bytes {format_bytes(size)}" if size else f"dirty_background_ratio {share} % (about {format_bytes(gathers)})"
    command = _sysctl("dirty_background_bytes", 256 * 2**20) + "; and vm.dirty_bytes, four times that"
    return _advice("dirty-pages", "ok" if gathers <= MOST_BACKGROUND else "consider", said, wanted, why, command, KERNEL)


def _transparent(host: HostPractice) -> Advice:
    value = host.transparent_huge_pages
    why = "With 'always' the kernel compacts memory while a process waits, and small tables of a backend take 2 MB each"
    wanted = "madvise or never"
    if value is None:
        return _advice("transparent-huge-pages", "unknown", "not visible, or not supported", wanted, why, source=POSTGRES)
    command = (
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled   "
        "# to keep it: transparent_hugepage=madvise on the kernel's command line"
    )
    return _advice("transparent-huge-pages", "ok" if value != "always" else "consider", value, wanted, why, command, POSTGRES)


def _governor(host: HostPractice) -> Advice:
    wanted, why = "performance", "A slower governor lowers the clock while a database waits, and each short query pays for raising it again"
    if host.governor is None:
        found = "not visible: the hypervisor decides" if host.virtualisation else "not visible"
        return _advice("governor", "unknown", found, wanted, why, source="Linux documentation, admin-guide/pm/cpufreq")
    command = "for g in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $g; done"
    outcome: Outcome = "ok" if host.governor == "performance" else "consider"
    return _advice("governor", outcome, host.governor, wanted, why, command, "Linux documentation, admin-guide/pm/cpufreq")


def _clock(host: HostPractice) -> Advice:
    wanted = "tsc, or the hypervisor's own"
    why = "A slow clock is read through the kernel or the hypervisor: EXPLAIN ANALYZE and track_io_timing cost several times as much"
    source = "PostgreSQL documentation, pg_test_timing"
    if host.clock_source is None:
        return _advice("clock-source", "unknown", "not visible", wanted, why, source=source)
    if host.clock_source in FAST_CLOCKS:
        return _advice("clock-source", "ok", host.clock_source, wanted, why, source=source)
    better = next((name for name in FAST_CLOCKS if name in host.clock_sources), None)
    command = f"echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource" if better else ""
    found = host.clock_source if better else f"{host.clock_source}, and the kernel offers no better one"
    return _advice("clock-source", "change" if better else "consider", found, wanted, why, command, source)
