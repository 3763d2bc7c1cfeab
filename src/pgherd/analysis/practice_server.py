"""Good practice for a PostgreSQL server (E17, and PostgreSQL's documentation): facts in, advice out. Pure; changes nothing."""

from __future__ import annotations

from pgherd.model.practice import Advice, HostPractice, Outcome, ServerPractice
from pgherd.model.units import format_bytes

E17 = "E17"
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


def _advice(check: str, outcome: Outcome, found: str, wanted: str, why: str, command: str = "", source: str = E17) -> Advice:
    needs = outcome in ("change", "consider")
    return Advice(
        check=check, about="server", outcome=outcome, found=found, wanted=wanted, why=why, command=command if needs else "", source=source
    )


def _set(name: str, value: str, *, restart: bool = False) -> str:
    after = "restart the server" if restart else "SELECT pg_reload_conf()"
    return f"ALTER SYSTEM SET {name} = '{value}';   -- then {after}"


def _devices(server: ServerPractice) -> Advice:
    wanted = "DATA and WAL on devices of their own, apart from the rest"
    why = "Commits wait for the WAL's small sequential writes; behind a checkpoint's random ones on the same device they wait longer"
    if not server.local or not server.data or not server.wal:
        reason = "its files are not visible from here" if server.local else "it runs on another host"
        return _advice("devices-apart", "unknown", reason, wanted, why)
    shared = sorted(set(server.data) & set(server.wal))
    rest, logged = sorted(set(server.data) & set(server.system)), sorted(set(server.wal) & set(server.system))
    command = "stop the server, move pg_wal to a file system on another device, link it: mv pg_wal /wal/pg_wal && ln -s /wal/pg_wal pg_wal"
    if shared:
        return _advice("devices-apart", "consider", f"DATA and WAL are both on {', '.join(shared)}", wanted, why, command)
    if rest:
        found = f"DATA on {', '.join(server.data)}, which holds the system too; WAL on {', '.join(server.wal)}"
        return _advice("devices-apart", "consider", found, wanted, why, "move the data directory to a device of its own")
    if logged:
        found = f"DATA on {', '.join(server.data)}; WAL on {', '.join(server.wal)}, which holds the system too"
        return _advice("devices-apart", "consider", found, wanted, why, command)
    return _advice("devices-apart", "ok", f"DATA on {', '.join(server.data)}, WAL on {', '.join(server.wal)}", wanted, why)


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
    return _advice("dedicated-server", "consider" if len(named) > 1 or others else "ok", found, wanted, why, command)


def _buffers(server: ServerPractice, host: HostPractice) -> Advice:
    wanted = "25 to 40 % of memory, or beyond convention (75 %), but not near half"
    why = "Near half of memory the page cache holds what the buffers hold, and each page is kept twice"
    size = server.bytes_.get("shared_buffers")
    if size is None:
        return _advice("shared-buffers", "unknown", "not visible to this user", wanted, why)
    if not server.local or not host.memory:
        return _advice("shared-buffers", "unknown", f"{format_bytes(size)}; its host's memory is not visible from here", wanted, why)
    share = round(size / host.memory, 3)
    found = f"{format_bytes(size)}, {share:.0%} of {format_bytes(host.memory)}"
    if NEAR_HALF[0] <= share <= NEAR_HALF[1]:
        return _advice("shared-buffers", "change", found, wanted, why, _buffers_command(host, 0.25))
    if share > BEYOND + 0.05:
        why = "What is left must hold all backends, their sorts and the kernel: the next query may not find its memory"
        return _advice("shared-buffers", "consider", found, wanted, why, _buffers_command(host, BEYOND))
    data = sum(server.databases.values())
    if share < SMALL and data > size:
        why = f"The databases take {format_bytes(data)}, and the buffers hold little of that; the page cache helps, at a copy for each read"
        return _advice("shared-buffers", "consider", found, wanted, why, _buffers_command(host, 0.25))
    return _advice("shared-buffers", "ok", found, wanted, why)


def _buffers_command(host: HostPractice, share: float) -> str:
    return _set("shared_buffers", f"{int(host.memory * share / 2**20)}MB", restart=True)


def _huge_pages(server: ServerPractice) -> Advice:
    wanted = "on, with as many reserved as shared memory needs"
    why = "Shared memory in pages of 4 kB costs each backend a page table of its own, and misses of the TLB"
    size, asked = server.bytes_.get("shared_buffers"), server.settings.get("huge_pages")
    if size is None or asked is None:
        return _advice("huge-pages", "unknown", "not visible to this user", wanted, why, source=RESOURCES)
    status = server.huge_pages_status
    got = f", and it has {'got them' if status == 'on' else 'none'}" if status in ("on", "off") else ", whether it has got them is not told"
    found = f"huge_pages = {asked}{got}; shared_buffers {format_bytes(size)}"
    if status == "on" or (asked == "on" and status is None):
        return _advice("huge-pages", "ok", found, wanted, why, source=RESOURCES)
    if size < LARGE_BUFFERS:
        return _advice("huge-pages", "ok", f"{found}: little to gain", wanted, why, source=RESOURCES)
    pages = server.huge_pages_needed or 0
    reserve = f"sysctl -w vm.nr_hugepages={pages}   # as root, on its host; then " if pages > 0 else "reserve them (vm.nr_hugepages), then "
    outcome: Outcome = "unknown" if status is None and asked == "try" else "consider"
    return _advice("huge-pages", outcome, found, wanted, why, reserve + _set("huge_pages", "on", restart=True), RESOURCES)


def _target(server: ServerPractice) -> Advice:
    text = server.settings.get("checkpoint_completion_target")
    wanted, why = f"{TARGET:g}", "Spread over most of the interval, a checkpoint's writes leave room for those of the WAL"
    if text is None:
        return _advice("checkpoint-spread", "unknown", "not visible to this user", wanted, why)
    outcome: Outcome = "ok" if float(text) >= TARGET else "change"
    return _advice("checkpoint-spread", outcome, text, wanted, why, _set("checkpoint_completion_target", f"{TARGET:g}"))


def _wal_size(server: ServerPractice) -> Advice:
    size = server.bytes_.get("max_wal_size")
    wanted = f"so large that at most {MANY_REQUESTED:.0%} of the checkpoints come before their time"
    why = "A checkpoint forced by WAL's volume comes when the load is highest, and full-page images begin anew after each"
    if size is None or server.timed is None or server.requested is None:
        return _advice("max-wal-size", "unknown", "not visible to this user", wanted, why, source=WAL_DOC)
    whole = server.timed + server.requested
    found = f"{format_bytes(size)}; {server.requested} of {whole} checkpoints were requested, not timed"
    if whole < FEW_CHECKPOINTS:
        return _advice("max-wal-size", "unknown", f"{found}: too few to judge", wanted, why, source=WAL_DOC)
    outcome: Outcome = "ok" if server.requested <= MANY_REQUESTED * whole else "consider"
    command = _set("max_wal_size", f"{max(size * 4 // 2**20, 4096)}MB")
    return _advice("max-wal-size", outcome, found, wanted, why, command, WAL_DOC)


def _images(server: ServerPractice) -> Advice:
    used = server.settings.get("wal_compression")
    wanted = "lz4 or zstd where full-page images are many, or on where this build has neither"
    why = "After each checkpoint the first change of a page writes all of it into the WAL; compressed, that is half or less, for some CPU"
    if used is None:
        return _advice("wal-compression", "unknown", "not visible to this user", wanted, why, source=WAL_DOC)
    if used != "off":
        return _advice("wal-compression", "ok", used, wanted, why, source=WAL_DOC)
    if server.full_pages is None or not server.wal_records:
        return _advice("wal-compression", "unknown", "off; how many images there are is not visible", wanted, why, source=WAL_DOC)
    share = server.full_pages / server.wal_records
    found = f"off; {server.full_pages:,} full-page images among {server.wal_records:,} records ({share:.0%})"
    outcome: Outcome = "consider" if share >= MANY_IMAGES else "ok"
    best = next((name for name in ("lz4", "zstd") if name in server.wal_compressions), "on")
    return _advice("wal-compression", outcome, found, wanted, why, _set("wal_compression", best), WAL_DOC)


def _checksums(server: ServerPractice) -> Advice:
    text = server.settings.get("data_checksums")
    wanted, why = "on", "Without them a page that storage has damaged is read as if nothing were wrong"
    source = "PostgreSQL documentation, 'Data Checksums'; on by itself since version 18"
    if text is None:
        return _advice("checksums", "unknown", "not visible to this user", wanted, why, source=source)
    command = "stop the server, then pg_checksums --enable -D DATA   # reads and writes every page"
    return _advice("checksums", "ok" if text == "on" else "consider", text, wanted, why, command, source)


def _on(server: ServerPractice, name: str, why: str, outcome: Outcome) -> Advice:
    text = server.settings.get(name)
    check = name.replace("_", "-")
    if text is None:
        return _advice(check, "unknown", "not visible to this user", "on", why, source=WAL_DOC)
    return _advice(check, outcome if text == "off" else "ok", text, "on", why, _set(name, "on"), WAL_DOC)
