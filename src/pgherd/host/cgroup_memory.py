"""Memory of cgroups: memory and swap limits, reclaim, and OOM kills.

v1 (admin-guide/cgroup-v1/memory.rst) limits memory, and the sum of memory and swap (memsw), which may never be the
smaller one. v2 (admin-guide/cgroup-v2.rst) has separate limits.

The kernel writes one log line per OOM victim, which begins with ``oom-kill:`` (mm/oom_kill.c, ``dump_oom_summary``, since
Linux 5.0). It does not log all of many kills in a short time, but a cgroup's counter includes every one.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pgherd.host import processes
from pgherd.host.kernel_files import flat_keyed, text_of
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node

_RECLAIM_TIMEOUT_S = 30.0
_RECLAIM_ATTEMPTS = 5
_LEAST_FREE = 4 * 2**20
"""Bytes above the memory in use at which a v1 limit stays meanwhile: connections that begin do not reach it."""
_FREE_SHARE = 1 / 32
"""The same as a share of the memory in use: less than pg_balloon keeps available by default, so that it makes room."""
_STEP_SHARE = 0.1
"""Share of the memory in use that one attempt takes away under v1 with swap."""
_OOM_LINE = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\] oom-kill:(.*)$", re.MULTILINE)
_LINE_START = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\]", re.MULTILINE)


# ---- limits


def limit_v1(node: Node, group: str, memory: int | None, swap: int | None) -> None:
    """Limit a v1 group to ``memory`` bytes and ``swap`` further bytes of swap.

    None leaves a limit unchanged.

    A kernel without swap accounting cannot limit swap. Only the host's swap space limits the group then. If ``swap`` is 0, the group's
    swappiness is set to 0: the first of both limits would swap otherwise, and without accounting nothing else prevents it.

    Raises:
        CapabilityError: the kernel refuses.
    """
    memory_file, sum_file = f"{group}/memory.limit_in_bytes", f"{group}/memory.memsw.limit_in_bytes"
    if swap is None or (memory is None and text_of(node, memory_file) == ""):
        if memory is not None:
            _write_v1(node, memory_file, memory)
        return
    if swap == 0:
        write(node, f"{group}/memory.swappiness", 0)
    memory_limit = memory if memory is not None else int(text_of(node, memory_file))
    for file, value in _v1_steps(node, memory_file, memory_limit, sum_file, swap):
        _write_v1(node, file, value)


def _v1_steps(node: Node, memory_file: str, memory: int, sum_file: str, swap: int | None) -> list[tuple[str, int]]:
    """Return the files and values to write in turn, so that the limit of the sum is never the smaller one."""
    steps = [(memory_file, memory)]
    if swap is not None and node.exists(sum_file):
        steps.append((sum_file, memory + swap))
        if memory + swap >= int(text_of(node, sum_file) or 0):
            steps.reverse()
    return steps


def limit_v2(node: Node, group: str, memory: int | None, swap: int | None) -> None:
    """Limit a v2 group; arguments and errors as in ``limit_v1``.

    Memory above the new limit is reclaimed first, by memory.high. memory.max below the current usage kills processes
    after a few attempts to reclaim (mm/memcontrol.c, memory_max_write), but memory.high never does.
    """
    if memory is not None:
        with _reclaimed(node, group, memory):
            write(node, f"{group}/memory.max", memory)
    if swap is not None and node.exists(f"{group}/memory.swap.max"):
        write(node, f"{group}/memory.swap.max", swap)


@contextlib.contextmanager
def _reclaimed(node: Node, group: str, memory: int) -> Iterator[None]:
    """Keep a v2 group at ``memory`` bytes by memory.high during the block.

    Raises CapabilityError if it stays larger.
    """
    current, high = f"{group}/memory.current", f"{group}/memory.high"

    def fits() -> bool:
        return int(text_of(node, current) or 0) <= memory

    def reclaim() -> bool:
        write(node, high, memory)  # each write reclaims until the limit, or until the kernel finds nothing more
        return fits()

    previous_high = text_of(node, high)
    if previous_high == "" or fits():
        yield
        return
    try:
        if not processes.wait_until(reclaim, _RECLAIM_TIMEOUT_S):
            raise CapabilityError(
                f"{group}/memory.max can't be lowered to {memory} bytes within {_RECLAIM_TIMEOUT_S:.0f} s, "
                f"since {text_of(node, current)} bytes are in use; stop servers first"
            )
        yield
    finally:
        write(node, high, previous_high)


def try_limit(node: Node, group: str, memory: int, swap: int | None, *, v2: bool) -> bool:
    """Attempt to set the memory limit of a group with running processes. Return False if more memory is in use than the kernel reclaims.

    Under v2 each attempt reclaims by memory.high, and memory.max follows once the memory in use fits. memory.high then stays lowered until
    an attempt succeeds, so that processes are slowed down and not killed. Under v1 a refused limit has no effect; each attempt then lowers
    the limit to a little more than the memory in use, so that pg_balloon sees that memory is short. With swap, an attempt while no
    memory became free lowers it by a share of the memory in use.

    Args:
        memory: bytes.
        swap: further bytes of swap. None leaves that limit unchanged.

    Raises:
        CapabilityError: the kernel refuses for another reason than memory in use.
    """
    if not v2:
        return _try_limit_v1(node, group, memory, swap)
    if int(text_of(node, f"{group}/memory.current") or 0) > memory:
        write(node, f"{group}/memory.high", memory)
        if int(text_of(node, f"{group}/memory.current") or 0) > memory:
            return False
    write(node, f"{group}/memory.max", memory)
    write(node, f"{group}/memory.high", "max")
    return True


def _try_limit_v1(node: Node, group: str, memory: int, swap: int | None) -> bool:
    memory_file, sum_file = f"{group}/memory.limit_in_bytes", f"{group}/memory.memsw.limit_in_bytes"
    held = _held_v1(node, group)
    if held > memory and (_approach_v1(node, group, memory, held) or swap == 0):
        return False  # without swap, an attempt would look for pages to reclaim for a second, in vain
    # With swap, the kernel reclaims until the limit fits, as long as it finds a page (mm/memcontrol.c, mem_cgroup_resize_max). Servers that
    # read back what it swaps out can keep it from ending, and meanwhile no process notices a lower limit.
    step = max(memory, int((1 - _STEP_SHARE) * held))
    for file, value in _v1_steps(node, memory_file, step, sum_file, swap):
        try:
            node.write(file, str(value).encode())
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise _refusal(file, value, error) from error
            if file == memory_file:
                _approach_v1(node, group, memory, _held_v1(node, group))
            return False
    return step == memory


def _held_v1(node: Node, group: str) -> int:
    """Return the bytes of a v1 group that are not page cache."""
    cached = flat_keyed(text_of(node, f"{group}/memory.stat"), {"total_inactive_file": "inactive", "total_active_file": "active"})
    return int(text_of(node, f"{group}/memory.usage_in_bytes") or 0) - int(sum(cached.values()))


def _approach_v1(node: Node, group: str, memory: int, held: int) -> bool:
    """Lower a limit to a little more than the ``held`` bytes, which are not page cache. Return False if it is as low, or is refused.

    v1 keeps a refused limit as it was, which no process notices. A lower one is noticed. It is never raised again here.
    """
    lower = max(memory, held + int(max(_LEAST_FREE, _FREE_SHARE * held)))
    if lower >= int(text_of(node, f"{group}/memory.limit_in_bytes") or 0):
        return False
    try:
        node.write(f"{group}/memory.limit_in_bytes", str(lower).encode())
    except OSError:
        return False
    return True


def empty(node: Node, group: str, *, v2: bool) -> None:
    """Drop the page cache of a group without processes, as far as the kernel can."""
    with contextlib.suppress(OSError):
        if not v2:
            node.write(f"{group}/memory.force_empty", b"0")
            return
        for _ in range(_RECLAIM_ATTEMPTS):  # a write fails if it reclaims less than requested
            usage = text_of(node, f"{group}/memory.current")
            if usage in ("", "0") or not node.exists(f"{group}/memory.reclaim"):
                return
            with contextlib.suppress(BlockingIOError):
                node.write(f"{group}/memory.reclaim", usage.encode())


def write(node: Node, path: str, value: int | str) -> None:
    """Write one limit; raises CapabilityError with the kernel's reason."""
    try:
        node.write(path, str(value).encode())
    except OSError as error:
        raise _refusal(path, value, error) from error


def _write_v1(node: Node, path: str, value: int) -> None:
    """Write a limit of v1, with retries: EBUSY means that reclaim is incomplete."""
    failure: OSError | None = None

    def written() -> bool:
        nonlocal failure
        try:
            node.write(path, str(value).encode())
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise _refusal(path, value, error) from error
            failure = error
            return False
        return True

    if not processes.wait_until(written, _RECLAIM_TIMEOUT_S):
        raise CapabilityError(
            f"{path} can't be lowered to {value} bytes within {_RECLAIM_TIMEOUT_S:.0f} s, since more is in use: {failure}; "
            "stop servers first"
        )


def _refusal(path: str, value: int | str, error: OSError) -> CapabilityError:
    return CapabilityError(f"the kernel does not take {value} for {path}: {error.strerror or error}")


# ---- OOM kills


@dataclass(frozen=True)
class OomVictim:
    """OOM victim: time (seconds since the epoch), time in the kernel log (its clock, s), name, pid and cgroup.

    ``at`` is an estimate: the log's clock drifts over days of uptime, and stops while the host is suspended. ``limited`` is
    the group whose limit was reached, or '' if the machine had no memory left.
    """

    at: float
    logged: float
    process: str
    pid: int
    group: str
    limited: str


def oom_kills(node: Node, groups: Mapping[str, str]) -> int:
    """Return the number of OOM kills in a group; 0 if the kernel does not report it.

    v1: ``memory.oom_control``, since Linux 4.13. v2: ``memory.events``.
    """
    file = f"{groups['memory']}/memory.oom_control" if "memory" in groups else f"{groups.get('v2', '')}/memory.events"
    fields = text_of(node, file).split()
    return next((int(value) for name, value in pairwise(fields) if name == "oom_kill" and value.isdigit()), 0)


def log_end(node: Node) -> float:
    """Return the time of the last line in the kernel log, by the log's clock (s). 0 without access to the log."""
    return float((_LINE_START.findall(_kernel_log(node)) or ["0"])[-1])


def victims(node: Node, after: float) -> list[OomVictim]:
    """Return the OOM victims after an instant of the kernel log's clock (s), by time.

    The result is empty without access to the kernel log.
    """
    uptime = text_of(node, "/proc/uptime").split()
    boot = node.now() - float(uptime[0]) if uptime else 0.0
    return [victim for victim in parse_victims(_kernel_log(node), boot) if victim.logged > after]


def _kernel_log(node: Node) -> str:
    """Return the kernel log; '' without access to it."""
    try:
        result = node.run(Command(("dmesg", "--raw")))
    except (OSError, TimeoutError):
        return ""
    return "" if result.code else result.out


def parse_victims(log: str, boot: float) -> list[OomVictim]:
    """Parse the kernel log. ``boot`` is the zero of its clock."""
    parsed = []
    for seconds, line in _OOM_LINE.findall(log):
        fields = dict(re.findall(r"(\w+)=([^,]*)", line))
        if fields.get("pid", "").isdigit():
            limited = fields.get("oom_memcg", "")
            at, logged = boot + float(seconds), float(seconds)
            parsed.append(OomVictim(at, logged, fields.get("task", ""), int(fields["pid"]), fields.get("task_memcg", ""), limited))
    return parsed
