"""Recommended settings for hosts and PostgreSQL servers, and advice from their facts.

Sources are experiment E17 and the documentation of PostgreSQL and Linux. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

from pgherd.model.host_facts import Advice, HardwareDevice, HostAdviceFacts, Outcome, ServerFacts
from pgherd.model.units import format_bytes

E17 = "E17"
POSTGRES = "PostgreSQL documentation, chapter 'Managing Kernel Resources'"
KERNEL = "Linux documentation, admin-guide/sysctl/vm"

PLAIN_SCHEDULERS = ("none", "noop")
PARAVIRTUAL_DISKS = ("virtio_blk", "virtio_scsi", "vmw_pvscsi", "pvscsi", "xen-blkfront", "vbd", "hv_storvsc", "storvsc_host", "nvme")
"""Kernel names: of a disk's driver, or for SCSI disks proc_name of the host adapter."""
PARAVIRTUAL_CARDS = ("virtio_net", "vmxnet3", "xen-netfront", "vif", "hv_netvsc", "ena", "gve", "mana")
EMULATED_CARDS = ("e1000", "e1000e", "8139cp", "8139too", "pcnet32", "ne2k-pci", "rtl8139")
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter")
MOST_SWAPPINESS = 10
MOST_BACKGROUND = 2**30
"""Maximum bytes of dirty pages before background writeback starts."""


def _advice(
    scope: Literal["host", "server"],
    check: str,
    outcome: Outcome,
    observed: str,
    recommended: str,
    rationale: str,
    command: str = "",
    source: str = E17,
) -> Advice:
    """Return the advice of one check. The command is kept only if a change is recommended."""
    fix = command if outcome in ("change", "consider") else ""
    return Advice(
        check=check,
        scope=scope,
        outcome=outcome,
        observed=observed,
        recommended=recommended,
        rationale=rationale,
        fix=fix,
        source=source,
    )


_host = partial(_advice, "host")
_server = partial(_advice, "server")


def host_advice(host: HostAdviceFacts) -> list[Advice]:
    """Run all checks of a host, in a fixed order."""
    return [
        *_schedulers(host),
        *_drivers(host),
        _thick_disks(host),
        _balloon(host),
        _swappiness(host),
        _overcommit(host),
        _dirty_pages(host),
        _transparent_huge_pages(host),
        _governor(host),
        _clock(host),
    ]


def _schedulers(host: HostAdviceFacts) -> Iterator[Advice]:
    rationale = "The hypervisor and its storage reorder requests. A scheduler in the guest only adds CPU time and delay"
    if host.virtualisation is None:
        return
    if not host.disks:
        yield _host("io-scheduler", "unknown", "no disk is visible", "none (or noop) on virtual disks", rationale)
    for disk in host.disks:
        used = disk.schedulers[0] if disk.schedulers else ""
        outcome: Outcome = "unknown" if not used else "ok" if used in PLAIN_SCHEDULERS else "change"
        plain = next((name for name in PLAIN_SCHEDULERS if name in disk.schedulers), "none")
        command = f'echo {plain} > /sys/block/{disk.name}/queue/scheduler   # persistent: udev rule ATTR{{queue/scheduler}}="{plain}"'
        observed = f"{disk.name}: {used}" if used else f"{disk.name}: not visible"
        yield _host("io-scheduler", outcome, observed, "none (or noop) on virtual disks", rationale, command)


def _drivers(host: HostAdviceFacts) -> Iterator[Advice]:
    if host.virtualisation is None:
        return
    rationale = "An emulated device needs exits to the hypervisor for every request. A paravirtual device batches requests"
    command = f"use virtio (KVM, AHV), PVSCSI and VMXNET3 (VMware) devices in {host.virtualisation}'s settings"
    for kind, parts, drivers in (("disk", host.disks, PARAVIRTUAL_DISKS), ("network", host.cards, PARAVIRTUAL_CARDS)):
        for part in parts:
            yield _host(
                "paravirtual-drivers", _paravirtual(part, drivers), f"{kind} {part.name}: {part.driver or 'driver not visible'}",
                f"one of {', '.join(drivers[:4])} …", rationale, command,
            )  # fmt: skip


def _paravirtual(part: HardwareDevice, drivers: tuple[str, ...]) -> Outcome:
    if not part.driver:
        return "unknown"
    return "ok" if part.driver in drivers else "change" if part.driver in EMULATED_CARDS or drivers is PARAVIRTUAL_DISKS else "consider"


def _thick_disks(host: HostAdviceFacts) -> Advice:
    rationale = "A thin disk allocates blocks at their first write. Such writes are slow, and occur under load"
    recommended = "thick, eager-zeroed virtual disks"
    if host.virtualisation is None:
        return _host("thick-provisioned-disks", "ok", "no virtual disks: not a virtual machine", recommended, rationale)
    return _host(
        "thick-provisioned-disks",
        "unknown",
        "not visible inside a virtual machine; check the hypervisor's settings",
        recommended,
        rationale,
    )


def _balloon(host: HostAdviceFacts) -> Advice:
    recommended = "memory balloon present if memory may be overcommitted"
    rationale = "Without it a host short of memory swaps arbitrary guest pages. With a balloon the guest selects them"
    if host.virtualisation is None:
        return _host("balloon", "ok", "not a virtual machine", recommended, rationale)
    if host.balloon is None:
        return _host("balloon", "unknown", "not visible", recommended, rationale)
    if host.balloon:
        return _host("balloon", "ok", f"{host.balloon} has a device", recommended, rationale)
    command = "add a balloon device (KVM: <memballoon model='virtio'/>), or install the hypervisor's guest tools"
    return _host("balloon", "consider", "no balloon device", recommended, rationale, command)


def _sysctl(name: str, value: int | str) -> str:
    return f"sysctl -w vm.{name}={value}   # persistent: vm.{name} = {value} in /etc/sysctl.d/60-postgresql.conf"


def _swappiness(host: HostAdviceFacts) -> Advice:
    value = host.knobs.get("swappiness")
    rationale = "Rarely used shared buffers look idle to the kernel. If they are swapped out, each later hit reads from disk"
    recommended = f"at most {MOST_SWAPPINESS}"
    if value is None:
        return _host("swappiness", "unknown", "not visible", recommended, rationale, source=KERNEL)
    if host.swap == 0:
        return _host("swappiness", "ok", f"{value}, without swap", recommended, rationale, source=KERNEL)
    outcome: Outcome = "ok" if value <= MOST_SWAPPINESS else "consider"
    observed = f"{value}, with {format_bytes(host.swap)} of swap"
    return _host("swappiness", outcome, observed, recommended, rationale, _sysctl("swappiness", 1), KERNEL)


def _overcommit(host: HostAdviceFacts) -> Advice:
    value = host.knobs.get("overcommit_memory")
    rationale = "With 0 or 1 the kernel grants more memory than it has. Its OOM killer then ends a server process, and so the server"
    recommended = "2 (strict) on a dedicated database host"
    if value is None:
        return _host("vm-overcommit-memory", "unknown", "not visible", recommended, rationale, source=POSTGRES)
    ratio = host.knobs.get("overcommit_ratio")
    with_ratio = f", overcommit_ratio {ratio} %" if value == 2 and ratio is not None else ""
    command = _sysctl("overcommit_memory", 2) + "; also set vm.overcommit_ratio: the commit limit is swap + that share of RAM"
    return _host(
        "vm-overcommit-memory", "ok" if value == 2 else "consider", f"{value}{with_ratio}", recommended, rationale, command, POSTGRES
    )


def _dirty_pages(host: HostAdviceFacts) -> Advice:
    rationale = "Accumulated dirty pages are written at once when a checkpoint syncs its files, and delay WAL writes"
    recommended = f"background writeback starts at {format_bytes(MOST_BACKGROUND)} or less"
    size, share = host.knobs.get("dirty_background_bytes", 0), host.knobs.get("dirty_background_ratio")
    if not size and share is None:
        return _host("dirty-background-bytes", "unknown", "not visible", recommended, rationale, source=KERNEL)
    limit = size or (share or 0) * host.memory // 100
    observed = f"dirty_background_bytes {format_bytes(size)}" if size else f"dirty_background_ratio {share} % (about {format_bytes(limit)})"
    command = _sysctl("dirty_background_bytes", 256 * 2**20) + "; set vm.dirty_bytes to four times that"
    return _host(
        "dirty-background-bytes", "ok" if limit <= MOST_BACKGROUND else "consider", observed, recommended, rationale, command, KERNEL
    )


def _transparent_huge_pages(host: HostAdviceFacts) -> Advice:
    value = host.transparent_huge_pages
    rationale = "With 'always' the kernel compacts memory while a process waits, and small allocations of a backend use 2 MB each"
    recommended = "madvise or never"
    if value is None:
        return _host("transparent-huge-pages", "unknown", "not visible, or not supported", recommended, rationale, source=POSTGRES)
    command = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled   # persistent: kernel option transparent_hugepage=madvise"
    return _host("transparent-huge-pages", "ok" if value != "always" else "consider", value, recommended, rationale, command, POSTGRES)


def _governor(host: HostAdviceFacts) -> Advice:
    recommended, rationale = (
        "performance",
        "Other governors lower the clock while a database waits, and each short query waits until it rises again",
    )
    if host.governor is None:
        observed = "not visible: set by the hypervisor" if host.virtualisation else "not visible"
        return _host("governor", "unknown", observed, recommended, rationale, source="Linux documentation, admin-guide/pm/cpufreq")
    command = "for g in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $g; done"
    outcome: Outcome = "ok" if host.governor == "performance" else "consider"
    return _host("governor", outcome, host.governor, recommended, rationale, command, "Linux documentation, admin-guide/pm/cpufreq")


def _clock(host: HostAdviceFacts) -> Advice:
    recommended = "tsc, or the hypervisor's clock"
    rationale = "A slow clock requires calls to the kernel or hypervisor. EXPLAIN ANALYZE and track_io_timing cost several times as much"
    source = "PostgreSQL documentation, pg_test_timing"
    if host.clock_source is None:
        return _host("clock-source", "unknown", "not visible", recommended, rationale, source=source)
    if host.clock_source in FAST_CLOCKS:
        return _host("clock-source", "ok", host.clock_source, recommended, rationale, source=source)
    better = next((name for name in FAST_CLOCKS if name in host.clock_sources), None)
    command = f"echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource" if better else ""
    observed = host.clock_source if better else f"{host.clock_source} (no faster one available)"
    return _host("clock-source", "change" if better else "consider", observed, recommended, rationale, command, source)


WAL_DOC = "PostgreSQL documentation, 'WAL Configuration'"
RESOURCES = "PostgreSQL documentation, 'Resource Consumption'"

NOT_LOCAL = "not shown to run on this host; if it does, connect through its Unix socket, or run pgherd as root"
NEAR_HALF = (0.45, 0.55)
"""Shares of memory at which buffers and page cache hold much the same pages."""
BEYOND = 0.75
"""Unconventional share that E17 used."""
SMALL = 0.10
"""Share of memory below which shared_buffers is small for a dedicated server."""
LARGE_BUFFERS = 2 * 2**30
"""Size of shared_buffers from which huge pages are worthwhile."""
TARGET = 0.9
MANY_REQUESTED = 0.2
"""Share of requested (not timed) checkpoints above which max_wal_size is too small."""
FEW_CHECKPOINTS = 10
MANY_IMAGES = 0.2
"""Full-page images per WAL record from which compressing them is worth a test."""


def server_advice(server: ServerFacts, host: HostAdviceFacts) -> list[Advice]:
    """Run all checks of a server, in a fixed order. Checks that need a remote host's facts are 'unknown'."""
    return [
        _separate_wal_device(server),
        _dedicated_server(server),
        _shared_buffers(server, host),
        _huge_pages(server),
        _completion_target(server),
        _wal_size(server),
        _wal_compression(server),
        _checksums(server),
        *(_kept_on(server, name, rationale, outcome) for name, rationale, outcome in _KEPT_ON),
    ]


_KEPT_ON: tuple[tuple[str, str, Outcome], ...] = (
    ("fsync", "Without it a system crash can corrupt the database", "change"),
    ("full_page_writes", "Without it recovery cannot repair torn pages, unless the file system writes 8 kB atomically", "change"),
    ("autovacuum", "Without it dead rows accumulate, and transaction IDs wrap around", "change"),
    ("synchronous_commit", "Without it a crash loses the last transactions that were reported as committed", "consider"),
)


def _set(name: str, value: str, *, restart: bool = False) -> str:
    after = "restart the server" if restart else "SELECT pg_reload_conf()"
    return f"ALTER SYSTEM SET {name} = '{value}';   -- then {after}"


def _separate_wal_device(server: ServerFacts) -> Advice:
    recommended = "separate devices for data and WAL, not shared with the system"
    rationale = "Commits wait for small sequential WAL writes. On a shared device they queue behind a checkpoint's random writes"
    if not server.local or not server.data or not server.wal:
        reason = "files not visible" if server.local else NOT_LOCAL
        return _server("separate-wal-device", "unknown", reason, recommended, rationale)
    common = sorted(set(server.data) & set(server.wal))
    data_on_system, wal_on_system = sorted(set(server.data) & set(server.system)), sorted(set(server.wal) & set(server.system))
    command = "stop the server, move pg_wal to a file system on another device, link it: mv pg_wal /wal/pg_wal && ln -s /wal/pg_wal pg_wal"
    if common:
        return _server("separate-wal-device", "consider", f"data and WAL on {', '.join(common)}", recommended, rationale, command)
    if data_on_system:
        observed = f"data on {', '.join(server.data)}, shared with the system; WAL on {', '.join(server.wal)}"
        return _server("separate-wal-device", "consider", observed, recommended, rationale, "move the data directory to a separate device")
    if wal_on_system:
        observed = f"data on {', '.join(server.data)}; WAL on {', '.join(server.wal)}, shared with the system"
        return _server("separate-wal-device", "consider", observed, recommended, rationale, command)
    return _server("separate-wal-device", "ok", f"data on {', '.join(server.data)}, WAL on {', '.join(server.wal)}", recommended, rationale)


def _dedicated_server(server: ServerFacts) -> Advice:
    recommended = "a separate container and server for each important database"
    rationale = "Databases of one server share buffers, WAL, checkpoints and autovacuum. One can starve the others"
    names = sorted(server.databases, key=lambda name: -server.databases[name])
    listing = ", ".join(f"{name} ({format_bytes(server.databases[name])})" for name in names[:5]) + (" …" if len(names) > 5 else "")
    observed = f"{len(names)} database{'' if len(names) == 1 else 's'}: {listing}" if names else "no user databases"
    command = "pg_dump each important database into a separate server"
    others = max(0, (server.servers_here or 1) - 1)
    if others:
        observed += f"; {others} other PostgreSQL server{'' if others == 1 else 's'} on this host"
        rationale += ". Servers of one host share memory, CPUs and disks"
        command = f"{command}, and " if len(names) > 1 else ""
        command += "give each important server a separate container or machine"
    command += "; 'pgherd consolidation' measures the benefit"
    return _server("dedicated-server", "consider" if len(names) > 1 or others else "ok", observed, recommended, rationale, command)


def _shared_buffers(server: ServerFacts, host: HostAdviceFacts) -> Advice:
    recommended = "25 to 40 % of memory, or 75 %, but not about 50 %"
    rationale = "At about half of memory, page cache and shared buffers hold mostly the same pages"
    size = server.bytes_.get("shared_buffers")
    if size is None:
        return _server("shared-buffers", "unknown", "not visible to this user", recommended, rationale)
    if not server.local or not host.memory:
        return _server(
            "shared-buffers",
            "unknown",
            f"{format_bytes(size)}; {'memory of this host not visible' if server.local else NOT_LOCAL}",
            recommended,
            rationale,
        )
    share = round(size / host.memory, 3)
    observed = f"{format_bytes(size)}, {share:.0%} of {format_bytes(host.memory)}"
    if NEAR_HALF[0] <= share <= NEAR_HALF[1]:
        return _server("shared-buffers", "change", observed, recommended, rationale, _buffers_command(host, 0.25))
    if share > BEYOND + 0.05:
        rationale = "The remainder must hold all backends, their sorts and the kernel. Queries may run out of memory"
        return _server("shared-buffers", "consider", observed, recommended, rationale, _buffers_command(host, BEYOND))
    data = sum(server.databases.values())
    if share < SMALL and data > size:
        rationale = f"The databases have {format_bytes(data)}, of which shared buffers hold little. Reads from the page cache need a copy"
        return _server("shared-buffers", "consider", observed, recommended, rationale, _buffers_command(host, 0.25))
    return _server("shared-buffers", "ok", observed, recommended, rationale)


def _buffers_command(host: HostAdviceFacts, share: float) -> str:
    return _set("shared_buffers", f"{int(host.memory * share / 2**20)}MB", restart=True)


def _huge_pages(server: ServerFacts) -> Advice:
    recommended = "on, with enough huge pages reserved for shared memory"
    rationale = "With 4 kB pages each backend has a large page table and more TLB misses"
    size, setting = server.bytes_.get("shared_buffers"), server.settings.get("huge_pages")
    if size is None or setting is None:
        return _server("huge-pages", "unknown", "not visible to this user", recommended, rationale, source=RESOURCES)
    status = server.huge_pages_status
    obtained = f" ({'in use' if status == 'on' else 'not in use'})" if status in ("on", "off") else " (use not reported)"
    observed = f"huge_pages = {setting}{obtained}; shared_buffers {format_bytes(size)}"
    if status == "on" or (setting == "on" and status is None):
        return _server("huge-pages", "ok", observed, recommended, rationale, source=RESOURCES)
    if size < LARGE_BUFFERS:
        return _server("huge-pages", "ok", f"{observed} (little to gain)", recommended, rationale, source=RESOURCES)
    pages = server.huge_pages_needed or 0
    reserve = (
        f"sysctl -w vm.nr_hugepages={pages}   # as root, on its host; then " if pages > 0 else "reserve huge pages (vm.nr_hugepages), then "
    )
    outcome: Outcome = "unknown" if status is None and setting == "try" else "consider"
    return _server("huge-pages", outcome, observed, recommended, rationale, reserve + _set("huge_pages", "on", restart=True), RESOURCES)


def _completion_target(server: ServerFacts) -> Advice:
    text = server.settings.get("checkpoint_completion_target")
    recommended, rationale = f"{TARGET:g}", "Writes spread over most of the checkpoint interval interfere less with WAL writes"
    if text is None:
        return _server("checkpoint-completion-target", "unknown", "not visible to this user", recommended, rationale)
    outcome: Outcome = "ok" if float(text) >= TARGET else "change"
    return _server(
        "checkpoint-completion-target", outcome, text, recommended, rationale, _set("checkpoint_completion_target", f"{TARGET:g}")
    )


def _wal_size(server: ServerFacts) -> Advice:
    size = server.bytes_.get("max_wal_size")
    recommended = f"large enough that at most {MANY_REQUESTED:.0%} of checkpoints are requested"
    rationale = "Checkpoints requested by WAL volume occur at peak load, and each causes a new round of full-page images"
    if size is None or server.timed is None or server.requested is None:
        return _server("max-wal-size", "unknown", "not visible to this user", recommended, rationale, source=WAL_DOC)
    total = server.timed + server.requested
    observed = f"{format_bytes(size)}; {server.requested} of {total} checkpoints requested, not timed"
    if total < FEW_CHECKPOINTS:
        return _server("max-wal-size", "unknown", f"{observed} (too few checkpoints)", recommended, rationale, source=WAL_DOC)
    outcome: Outcome = "ok" if server.requested <= MANY_REQUESTED * total else "consider"
    command = _set("max_wal_size", f"{max(size * 4 // 2**20, 4096)}MB")
    return _server("max-wal-size", outcome, observed, recommended, rationale, command, WAL_DOC)


def _wal_compression(server: ServerFacts) -> Advice:
    setting = server.settings.get("wal_compression")
    recommended = "lz4 or zstd (on if this build has neither), if full-page images are frequent"
    rationale = (
        "After each checkpoint the first change of a page writes the whole page to WAL. Compression halves it or better, for some CPU"
    )
    if setting is None:
        return _server("wal-compression", "unknown", "not visible to this user", recommended, rationale, source=WAL_DOC)
    if setting != "off":
        return _server("wal-compression", "ok", setting, recommended, rationale, source=WAL_DOC)
    if server.full_pages is None or not server.wal_records:
        return _server("wal-compression", "unknown", "off; number of images not visible", recommended, rationale, source=WAL_DOC)
    share = server.full_pages / server.wal_records
    observed = f"off; {server.full_pages:,} full-page images among {server.wal_records:,} records ({share:.0%})"
    outcome: Outcome = "consider" if share >= MANY_IMAGES else "ok"
    codec = next((name for name in ("lz4", "zstd") if name in server.wal_compressions), "on")
    return _server("wal-compression", outcome, observed, recommended, rationale, _set("wal_compression", codec), WAL_DOC)


def _checksums(server: ServerFacts) -> Advice:
    text = server.settings.get("data_checksums")
    recommended, rationale = "on", "Without them corruption by the storage is not detected"
    source = "PostgreSQL documentation, 'Data Checksums' (default since version 18)"
    if text is None:
        return _server("data-checksums", "unknown", "not visible to this user", recommended, rationale, source=source)
    command = "stop the server, then pg_checksums --enable -D DATA   # reads and writes every page"
    return _server("data-checksums", "ok" if text == "on" else "consider", text, recommended, rationale, command, source)


def _kept_on(server: ServerFacts, name: str, rationale: str, outcome: Outcome) -> Advice:
    text = server.settings.get(name)
    check = name.replace("_", "-")
    if text is None:
        return _server(check, "unknown", "not visible to this user", "on", rationale, source=WAL_DOC)
    return _server(check, outcome if text == "off" else "ok", text, "on", rationale, _set(name, "on"), WAL_DOC)
