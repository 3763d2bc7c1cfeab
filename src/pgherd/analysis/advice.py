"""Good practice for a host of databases (E17, and PostgreSQL's documentation): facts in, advice out. Pure; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

from pgherd.model.facts import Advice, HostPractice, Outcome, Part, ServerPractice
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


def _advice(
    about: Literal["host", "server"],
    check: str,
    outcome: Outcome,
    found: str,
    wanted: str,
    why: str,
    command: str = "",
    source: str = E17,
) -> Advice:
    """Return the advice of one check. Only an outcome that asks for a change keeps its command."""
    fix = command if outcome in ("change", "consider") else ""
    return Advice(check=check, about=about, outcome=outcome, found=found, wanted=wanted, why=why, command=fix, source=source)


_host = partial(_advice, "host")
_server = partial(_advice, "server")


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


def _schedulers(host: HostPractice) -> Iterator[Advice]:
    why = "The hypervisor and the storage below it order requests again; a scheduler in the guest only adds CPU and delay"
    if host.virtualisation is None:
        return
    if not host.disks:
        yield _host("io-scheduler", "unknown", "no disk is visible", "none (or noop) on virtual disks", why)
    for disk in host.disks:
        used = disk.schedulers[0] if disk.schedulers else ""
        outcome: Outcome = "unknown" if not used else "ok" if used in PLAIN_SCHEDULERS else "change"
        plain = next((name for name in PLAIN_SCHEDULERS if name in disk.schedulers), "none")
        command = f'echo {plain} > /sys/block/{disk.name}/queue/scheduler   # to keep it, a udev rule: ATTR{{queue/scheduler}}="{plain}"'
        found = f"{disk.name}: {used}" if used else f"{disk.name}: not visible"
        yield _host("io-scheduler", outcome, found, "none (or noop) on virtual disks", why, command)


def _drivers(host: HostPractice) -> Iterator[Advice]:
    if host.virtualisation is None:
        return
    why = "An emulated device costs exits to the hypervisor for every request; a paravirtual one hands over many at once"
    command = f"give the machine virtio (KVM, AHV), PVSCSI and VMXNET3 (VMware) devices in {host.virtualisation}'s settings"
    for what, parts, good in (("disk", host.disks, PARAVIRTUAL_DISKS), ("network", host.cards, PARAVIRTUAL_CARDS)):
        for part in parts:
            yield _host(
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
        return _host("thick-disks", "ok", "no virtual disks: this is no virtual machine", wanted, why)
    return _host("thick-disks", "unknown", "not visible from inside a virtual machine: look at the hypervisor's settings", wanted, why)


def _balloon(host: HostPractice) -> Advice:
    wanted = "the hypervisor's balloon present where memory may be overcommitted"
    why = "Without it a host short of memory swaps the guest's pages by itself, and picks them blindly; the balloon lets the guest choose"
    if host.virtualisation is None:
        return _host("balloon", "ok", "no virtual machine", wanted, why)
    if host.balloon is None:
        return _host("balloon", "unknown", "not visible", wanted, why)
    if host.balloon:
        return _host("balloon", "ok", f"{host.balloon} has a device", wanted, why)
    command = "add a balloon device (KVM: <memballoon model='virtio'/>), or install the hypervisor's guest tools"
    return _host("balloon", "consider", "no balloon device", wanted, why, command)


def _sysctl(name: str, value: int | str) -> str:
    return f"sysctl -w vm.{name}={value}   # to keep it: a line vm.{name} = {value} in /etc/sysctl.d/60-postgresql.conf"


def _swappiness(host: HostPractice) -> Advice:
    value = host.knobs.get("swappiness")
    why = "Shared buffers look idle to the kernel while they wait for their turn; swapped out, every later hit on them is a disk read"
    wanted = f"at most {MOST_SWAPPINESS}"
    if value is None:
        return _host("swappiness", "unknown", "not visible", wanted, why, source=KERNEL)
    if host.swap == 0:
        return _host("swappiness", "ok", f"{value}, and there is no swap", wanted, why, source=KERNEL)
    outcome: Outcome = "ok" if value <= MOST_SWAPPINESS else "consider"
    found = f"{value}, with {format_bytes(host.swap)} of swap"
    return _host("swappiness", outcome, found, wanted, why, _sysctl("swappiness", 1), KERNEL)


def _overcommit(host: HostPractice) -> Advice:
    value = host.knobs.get("overcommit_memory")
    why = "With 0 or 1 the kernel promises memory that it does not have, and ends a server process (and so the server) when it is claimed"
    wanted = "2 (strict) on a host that is there for databases"
    if value is None:
        return _host("overcommit", "unknown", "not visible", wanted, why, source=POSTGRES)
    ratio = host.knobs.get("overcommit_ratio")
    with_ratio = f", overcommit_ratio {ratio} %" if value == 2 and ratio is not None else ""
    command = _sysctl("overcommit_memory", 2) + "; set vm.overcommit_ratio too: swap + that share of RAM is all there is to give"
    return _host("overcommit", "ok" if value == 2 else "consider", f"{value}{with_ratio}", wanted, why, command, POSTGRES)


def _dirty(host: HostPractice) -> Advice:
    why = "What gathers is written at once when a checkpoint syncs its files: the WAL's writes wait behind it"
    wanted = f"write-back begins at {format_bytes(MOST_BACKGROUND)} or less"
    size, share = host.knobs.get("dirty_background_bytes", 0), host.knobs.get("dirty_background_ratio")
    if not size and share is None:
        return _host("dirty-pages", "unknown", "not visible", wanted, why, source=KERNEL)
    gathers = size or (share or 0) * host.memory // 100
    said = f"dirty_background_bytes {format_bytes(size)}" if size else f"dirty_background_ratio {share} % (about {format_bytes(gathers)})"
    command = _sysctl("dirty_background_bytes", 256 * 2**20) + "; and vm.dirty_bytes, four times that"
    return _host("dirty-pages", "ok" if gathers <= MOST_BACKGROUND else "consider", said, wanted, why, command, KERNEL)


def _transparent(host: HostPractice) -> Advice:
    value = host.transparent_huge_pages
    why = "With 'always' the kernel compacts memory while a process waits, and small tables of a backend take 2 MB each"
    wanted = "madvise or never"
    if value is None:
        return _host("transparent-huge-pages", "unknown", "not visible, or not supported", wanted, why, source=POSTGRES)
    command = (
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled   "
        "# to keep it: transparent_hugepage=madvise on the kernel's command line"
    )
    return _host("transparent-huge-pages", "ok" if value != "always" else "consider", value, wanted, why, command, POSTGRES)


def _governor(host: HostPractice) -> Advice:
    wanted, why = "performance", "A slower governor lowers the clock while a database waits, and each short query pays for raising it again"
    if host.governor is None:
        found = "not visible: the hypervisor decides" if host.virtualisation else "not visible"
        return _host("governor", "unknown", found, wanted, why, source="Linux documentation, admin-guide/pm/cpufreq")
    command = "for g in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $g; done"
    outcome: Outcome = "ok" if host.governor == "performance" else "consider"
    return _host("governor", outcome, host.governor, wanted, why, command, "Linux documentation, admin-guide/pm/cpufreq")


def _clock(host: HostPractice) -> Advice:
    wanted = "tsc, or the hypervisor's own"
    why = "A slow clock is read through the kernel or the hypervisor: EXPLAIN ANALYZE and track_io_timing cost several times as much"
    source = "PostgreSQL documentation, pg_test_timing"
    if host.clock_source is None:
        return _host("clock-source", "unknown", "not visible", wanted, why, source=source)
    if host.clock_source in FAST_CLOCKS:
        return _host("clock-source", "ok", host.clock_source, wanted, why, source=source)
    better = next((name for name in FAST_CLOCKS if name in host.clock_sources), None)
    command = f"echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource" if better else ""
    found = host.clock_source if better else f"{host.clock_source}, and the kernel offers no better one"
    return _host("clock-source", "change" if better else "consider", found, wanted, why, command, source)


WAL_DOC = "PostgreSQL documentation, 'WAL Configuration'"
RESOURCES = "PostgreSQL documentation, 'Resource Consumption'"

NEAR_HALF = (0.45, 0.55)
"""Shares of memory in which buffers and page cache hold much the same: each page twice."""
BEYOND = 0.75
"""What E17 tried beyond convention."""
SMALL = 0.10
"""Below this share of memory shared_buffers is small for a server of its own."""
LARGE_BUFFERS = 2 * 2**30
"""From here on huge pages are worth their trouble."""
TARGET = 0.9
MANY_REQUESTED = 0.2
"""Share of checkpoints that were not timed, above which max_wal_size is too small."""
FEW_CHECKPOINTS = 10
MANY_IMAGES = 0.2
"""Full-page images per WAL record from which compressing them is worth a trial."""


def server_advice(server: ServerPractice, host: HostPractice) -> list[Advice]:
    """All checks of a server, in a fixed order. What needs its host is 'unknown' where that is another one."""
    return [
        _devices(server),
        _alone(server),
        _buffers(server, host),
        _huge_pages(server),
        _target(server),
        _wal_size(server),
        _images(server),
        _checksums(server),
        *(_on(server, name, why, outcome) for name, why, outcome in _KEPT_ON),
    ]


_KEPT_ON: tuple[tuple[str, str, Outcome], ...] = (
    ("fsync", "Without it a crash of the machine leaves a database that nobody can trust", "change"),
    ("full_page_writes", "Without it a page torn by a crash cannot be repaired, unless the file system writes 8 kB atomically", "change"),
    ("autovacuum", "Without it dead rows stay, and transaction identifiers run out", "change"),
    ("synchronous_commit", "Without it a crash loses the last transactions that were told they had committed", "consider"),
)


def _set(name: str, value: str, *, restart: bool = False) -> str:
    after = "restart the server" if restart else "SELECT pg_reload_conf()"
    return f"ALTER SYSTEM SET {name} = '{value}';   -- then {after}"


def _devices(server: ServerPractice) -> Advice:
    wanted = "DATA and WAL on devices of their own, apart from the rest"
    why = "Commits wait for the WAL's small sequential writes; behind a checkpoint's random ones on the same device they wait longer"
    if not server.local or not server.data or not server.wal:
        reason = "its files are not visible from here" if server.local else "it runs on another host"
        return _server("devices-apart", "unknown", reason, wanted, why)
    shared = sorted(set(server.data) & set(server.wal))
    rest, logged = sorted(set(server.data) & set(server.system)), sorted(set(server.wal) & set(server.system))
    command = "stop the server, move pg_wal to a file system on another device, link it: mv pg_wal /wal/pg_wal && ln -s /wal/pg_wal pg_wal"
    if shared:
        return _server("devices-apart", "consider", f"DATA and WAL are both on {', '.join(shared)}", wanted, why, command)
    if rest:
        found = f"DATA on {', '.join(server.data)}, which holds the system too; WAL on {', '.join(server.wal)}"
        return _server("devices-apart", "consider", found, wanted, why, "move the data directory to a device of its own")
    if logged:
        found = f"DATA on {', '.join(server.data)}; WAL on {', '.join(server.wal)}, which holds the system too"
        return _server("devices-apart", "consider", found, wanted, why, command)
    return _server("devices-apart", "ok", f"DATA on {', '.join(server.data)}, WAL on {', '.join(server.wal)}", wanted, why)


def _alone(server: ServerPractice) -> Advice:
    wanted = "a container and a server of its own for each database that matters"
    why = "Databases of one server share its buffers, its WAL, its checkpoints and its vacuum: one can starve the others"
    named = sorted(server.databases, key=lambda name: -server.databases[name])
    shown = ", ".join(f"{name} ({format_bytes(server.databases[name])})" for name in named[:5]) + (" …" if len(named) > 5 else "")
    found = f"{len(named)} database{'' if len(named) == 1 else 's'}: {shown}" if named else "no database but the system's own"
    command = "pg_dump each of those that matter into a server of its own"
    others = max(0, (server.servers_here or 1) - 1)
    if others:
        found += f"; {others} other PostgreSQL server{'' if others == 1 else 's'} on this host"
        why += "; servers of one host share its memory, CPUs and disks"
        command = f"{command}, and " if len(named) > 1 else ""
        command += "give each server that matters a container or machine of its own"
    command += "; 'pgherd consolidation' measures what that buys here"
    return _server("dedicated-server", "consider" if len(named) > 1 or others else "ok", found, wanted, why, command)


def _buffers(server: ServerPractice, host: HostPractice) -> Advice:
    wanted = "25 to 40 % of memory, or beyond convention (75 %), but not near half"
    why = "Near half of memory the page cache holds what the buffers hold, and each page is kept twice"
    size = server.bytes_.get("shared_buffers")
    if size is None:
        return _server("shared-buffers", "unknown", "not visible to this user", wanted, why)
    if not server.local or not host.memory:
        return _server("shared-buffers", "unknown", f"{format_bytes(size)}; its host's memory is not visible from here", wanted, why)
    share = round(size / host.memory, 3)
    found = f"{format_bytes(size)}, {share:.0%} of {format_bytes(host.memory)}"
    if NEAR_HALF[0] <= share <= NEAR_HALF[1]:
        return _server("shared-buffers", "change", found, wanted, why, _buffers_command(host, 0.25))
    if share > BEYOND + 0.05:
        why = "What is left must hold all backends, their sorts and the kernel: the next query may not find its memory"
        return _server("shared-buffers", "consider", found, wanted, why, _buffers_command(host, BEYOND))
    data = sum(server.databases.values())
    if share < SMALL and data > size:
        why = f"The databases take {format_bytes(data)}, and the buffers hold little of that; the page cache helps, at a copy for each read"
        return _server("shared-buffers", "consider", found, wanted, why, _buffers_command(host, 0.25))
    return _server("shared-buffers", "ok", found, wanted, why)


def _buffers_command(host: HostPractice, share: float) -> str:
    return _set("shared_buffers", f"{int(host.memory * share / 2**20)}MB", restart=True)


def _huge_pages(server: ServerPractice) -> Advice:
    wanted = "on, with as many reserved as shared memory needs"
    why = "Shared memory in pages of 4 kB costs each backend a page table of its own, and misses of the TLB"
    size, asked = server.bytes_.get("shared_buffers"), server.settings.get("huge_pages")
    if size is None or asked is None:
        return _server("huge-pages", "unknown", "not visible to this user", wanted, why, source=RESOURCES)
    status = server.huge_pages_status
    got = f", and it has {'got them' if status == 'on' else 'none'}" if status in ("on", "off") else ", whether it has got them is not told"
    found = f"huge_pages = {asked}{got}; shared_buffers {format_bytes(size)}"
    if status == "on" or (asked == "on" and status is None):
        return _server("huge-pages", "ok", found, wanted, why, source=RESOURCES)
    if size < LARGE_BUFFERS:
        return _server("huge-pages", "ok", f"{found}: little to gain", wanted, why, source=RESOURCES)
    pages = server.huge_pages_needed or 0
    reserve = f"sysctl -w vm.nr_hugepages={pages}   # as root, on its host; then " if pages > 0 else "reserve them (vm.nr_hugepages), then "
    outcome: Outcome = "unknown" if status is None and asked == "try" else "consider"
    return _server("huge-pages", outcome, found, wanted, why, reserve + _set("huge_pages", "on", restart=True), RESOURCES)


def _target(server: ServerPractice) -> Advice:
    text = server.settings.get("checkpoint_completion_target")
    wanted, why = f"{TARGET:g}", "Spread over most of the interval, a checkpoint's writes leave room for those of the WAL"
    if text is None:
        return _server("checkpoint-spread", "unknown", "not visible to this user", wanted, why)
    outcome: Outcome = "ok" if float(text) >= TARGET else "change"
    return _server("checkpoint-spread", outcome, text, wanted, why, _set("checkpoint_completion_target", f"{TARGET:g}"))


def _wal_size(server: ServerPractice) -> Advice:
    size = server.bytes_.get("max_wal_size")
    wanted = f"so large that at most {MANY_REQUESTED:.0%} of the checkpoints come before their time"
    why = "A checkpoint forced by WAL's volume comes when the load is highest, and full-page images begin anew after each"
    if size is None or server.timed is None or server.requested is None:
        return _server("max-wal-size", "unknown", "not visible to this user", wanted, why, source=WAL_DOC)
    whole = server.timed + server.requested
    found = f"{format_bytes(size)}; {server.requested} of {whole} checkpoints were requested, not timed"
    if whole < FEW_CHECKPOINTS:
        return _server("max-wal-size", "unknown", f"{found}: too few to judge", wanted, why, source=WAL_DOC)
    outcome: Outcome = "ok" if server.requested <= MANY_REQUESTED * whole else "consider"
    command = _set("max_wal_size", f"{max(size * 4 // 2**20, 4096)}MB")
    return _server("max-wal-size", outcome, found, wanted, why, command, WAL_DOC)


def _images(server: ServerPractice) -> Advice:
    used = server.settings.get("wal_compression")
    wanted = "lz4 or zstd where full-page images are many, or on where this build has neither"
    why = "After each checkpoint the first change of a page writes all of it into the WAL; compressed, that is half or less, for some CPU"
    if used is None:
        return _server("wal-compression", "unknown", "not visible to this user", wanted, why, source=WAL_DOC)
    if used != "off":
        return _server("wal-compression", "ok", used, wanted, why, source=WAL_DOC)
    if server.full_pages is None or not server.wal_records:
        return _server("wal-compression", "unknown", "off; how many images there are is not visible", wanted, why, source=WAL_DOC)
    share = server.full_pages / server.wal_records
    found = f"off; {server.full_pages:,} full-page images among {server.wal_records:,} records ({share:.0%})"
    outcome: Outcome = "consider" if share >= MANY_IMAGES else "ok"
    best = next((name for name in ("lz4", "zstd") if name in server.wal_compressions), "on")
    return _server("wal-compression", outcome, found, wanted, why, _set("wal_compression", best), WAL_DOC)


def _checksums(server: ServerPractice) -> Advice:
    text = server.settings.get("data_checksums")
    wanted, why = "on", "Without them a page that storage has damaged is read as if nothing were wrong"
    source = "PostgreSQL documentation, 'Data Checksums'; on by itself since version 18"
    if text is None:
        return _server("checksums", "unknown", "not visible to this user", wanted, why, source=source)
    command = "stop the server, then pg_checksums --enable -D DATA   # reads and writes every page"
    return _server("checksums", "ok" if text == "on" else "consider", text, wanted, why, command, source)


def _on(server: ServerPractice, name: str, why: str, outcome: Outcome) -> Advice:
    text = server.settings.get(name)
    check = name.replace("_", "-")
    if text is None:
        return _server(check, "unknown", "not visible to this user", "on", why, source=WAL_DOC)
    return _server(check, outcome if text == "off" else "ok", text, "on", why, _set(name, "on"), WAL_DOC)
