"""CPUs of a machine, from /proc/cpuinfo and /sys/devices/system/cpu."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.host.kernel_files import text_of
from pgherd.node.protocol import Node

_CPU, _NODES = "/sys/devices/system/cpu", "/sys/devices/system/node"


@dataclass(frozen=True)
class CpuInfo:
    """Model name and hypervisor flag from /proc/cpuinfo.

    The flag is None on machines other than x86.
    """

    model: str = ""
    hypervisor: bool | None = None


@dataclass(frozen=True)
class CpuFrequency:
    """Frequency governors, and whether cores may boost above their nominal clock.

    None means not visible.
    """

    governor: str | None = None
    boost: bool | None = None


def parse_list(text: str) -> tuple[int, ...]:
    """Parse the kernel's CPU list format: ``0-3,8`` → (0, 1, 2, 3, 8).

    Raises ValueError for other text.
    """
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.strip().partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def parse_cpuinfo(text: str) -> CpuInfo:
    """Parse model and hypervisor flag of the first processor that has them.

    ARM has neither.
    """
    model = re.search(r"^(?:model name|cpu model|cpu|Processor)[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE)
    flags = re.search(r"^flags[ \t]*:(.*)$", text, re.MULTILINE)
    return CpuInfo(model[1].strip() if model else "", "hypervisor" in flags[1].split() if flags else None)


def allowed(node: Node) -> tuple[int, ...]:
    """Return the online CPUs that this process may use. ``/proc/self/status`` also lists CPUs that could be plugged in."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", text_of(node, "/proc/self/status"), re.MULTILINE)
    listed = parse_list(match[1]) if match else (0,)
    online = _online(node)
    return tuple(cpu for cpu in listed if cpu in online) or listed


def _online(node: Node) -> tuple[int, ...]:
    return parse_list(text_of(node, f"{_CPU}/online"))


def restricted(node: Node) -> tuple[int, ...]:
    """Return the CPUs that this process may use if they are some of the online ones. Empty: all."""
    usable = allowed(node)
    return usable if len(usable) < len(_online(node)) else ()


def siblings(node: Node, cpus: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Map each CPU of known topology to all hardware threads of its core."""
    threads = {}
    for cpu in cpus:
        text = text_of(node, f"{_CPU}/cpu{cpu}/topology/thread_siblings_list")
        if text:
            threads[cpu] = parse_list(text)
    return threads


def least_shared(
    cpus: Sequence[int], count: int, taken: Mapping[int, int], threads: Mapping[int, tuple[int, ...]]
) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Choose up to ``count`` of the ``cpus``, those that share least with others.

    CPUs are chosen one after another. The next one has the fewest users (``taken``), then the fewest users on the other
    hardware ``threads`` of its core, then the first position.

    Returns:
        A sharing score and the CPUs. The score is the number of users of these CPUs and that of their cores' other
        threads, including CPUs chosen before. Of several sets, the one with the smallest score shares least.
    """
    chosen: list[int] = []
    cpu_users, sibling_users = 0, 0
    for _ in range(min(count, len(cpus))):
        others = {
            cpu: sum(taken.get(sibling, 0) + (sibling in chosen) for sibling in threads.get(cpu, ()) if sibling != cpu)
            for cpu in cpus
            if cpu not in chosen
        }
        cpu = min(others, key=lambda candidate: (taken.get(candidate, 0), others[candidate]))
        chosen.append(cpu)
        cpu_users, sibling_users = cpu_users + taken.get(cpu, 0), sibling_users + others[cpu]
    return (cpu_users, sibling_users), tuple(chosen)


def numa_nodes(node: Node, cpus: Sequence[int]) -> dict[int, int]:
    """Map each CPU to the number of its NUMA node, without CPUs of unknown node."""
    numbers = parse_list(text_of(node, f"{_NODES}/online"))
    by_cpu = {cpu: number for number in numbers for cpu in parse_list(text_of(node, f"{_NODES}/node{number}/cpulist"))}
    return {cpu: by_cpu[cpu] for cpu in cpus if cpu in by_cpu}


def simultaneous_multithreading(node: Node, threads: Mapping[int, tuple[int, ...]]) -> bool | None:
    """Return whether several hardware threads share a physical core.

    The result is None if not visible.
    """
    active = text_of(node, f"{_CPU}/smt/active")
    if any(len(group) > 1 for group in threads.values()) or active == "1":
        return True
    return False if active == "0" or threads else None


def cpu_frequency(node: Node, cpus: Sequence[int]) -> CpuFrequency:
    """Read governors (joined by '/') and boost from the cpufreq drivers."""
    governors = sorted({text_of(node, f"{_CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {""})
    no_turbo, boost = text_of(node, f"{_CPU}/intel_pstate/no_turbo"), text_of(node, f"{_CPU}/cpufreq/boost")
    state = no_turbo == "0" if no_turbo in ("0", "1") else boost == "1" if boost in ("0", "1") else None
    return CpuFrequency("/".join(governors) or None, state)


def steal_share(stat: str) -> float | None:
    """Return the share of CPU time since boot that the hypervisor withheld (proc(5)).

    The result is None if not reported.
    """
    fields = stat.split("\n", 1)[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None
    times = [int(field) for field in fields[1:9]]  # the next field, guest time, is part of user time
    return times[7] / sum(times) if sum(times) else None


def core_note(
    *,
    virtualisation: str | None,
    smt: bool | None,
    threads: int,
    numa_nodes: int | None,
    boost: bool | None,
    steal: float | None,
    cores: float,
    logical: int,
) -> str:
    """Describe a core of this host for the reader of a scaling curve.

    ``threads`` is per physical core.
    """
    sentences = []
    if virtualisation:
        withheld = "" if steal is None else f", {100 * steal:.2g} % since boot"
        sentences.append(
            f"A core is a virtual CPU under {virtualisation}. The hypervisor may withhold CPU time (steal{withheld}). "
            "Sharing of physical cores and clock boost are not visible."
        )
    if smt:
        sentences.append(
            f"A core is one of {threads} hardware threads of a physical core. Together, the threads do less work than {threads} cores."
        )
    elif smt is False and not virtualisation:
        sentences.append("A core is a physical core.")
    if numa_nodes is not None and numa_nodes > 1:
        sentences.append(
            f"The cores belong to {numa_nodes} NUMA nodes. Access to memory of the local node is faster, "
            "and a database may run on one node with its memory on another."
        )
    if boost:
        sentences.append("The clock boosts while few cores are busy, so a single database runs faster than its share of the full host.")
    elif boost is False:
        sentences.append("The clock does not boost.")
    if cores < logical:
        sentences.append(f"A CPU quota limits pgherd to {cores:g} of {logical} CPUs.")
    return " ".join(sentences)
