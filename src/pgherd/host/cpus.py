"""What the CPUs of a machine are: pure parsers of /proc/cpuinfo and /sys/devices/system/cpu, and what one core is here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.host.cgroup_layout import text_of
from pgherd.node.protocol import Node

_CPU, _NODES = "/sys/devices/system/cpu", "/sys/devices/system/node"


@dataclass(frozen=True)
class Processors:
    """What /proc/cpuinfo tells: model name, and whether a hypervisor shows itself (None: not an x86 text)."""

    model: str = ""
    hypervisor: bool | None = None


@dataclass(frozen=True)
class Clock:
    """Frequency governor(s) and whether cores may boost above their nominal clock; None is not visible."""

    governor: str | None = None
    boost: bool | None = None


def parse_list(text: str) -> tuple[int, ...]:
    """``0-3,8`` → (0, 1, 2, 3, 8): the kernel's CPU list format. Raises ValueError for anything else."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.strip().partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def parse_cpuinfo(text: str) -> Processors:
    """Model and hypervisor flag of the first processor that names them; ARM texts have neither 'flags' nor a model."""
    model = re.search(r"^(?:model name|cpu model|cpu|Processor)[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE)
    flags = re.search(r"^flags[ \t]*:(.*)$", text, re.MULTILINE)
    return Processors(model[1].strip() if model else "", "hypervisor" in flags[1].split() if flags else None)


def allowed(node: Node) -> tuple[int, ...]:
    """The CPUs that our process may run on (``/proc/self/status``); includes what a cpuset around us allows."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", text_of(node, "/proc/self/status"), re.MULTILINE)
    return parse_list(match[1]) if match else (0,)


def siblings(node: Node, cpus: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """CPU → all hardware threads of its physical core; CPUs whose topology is not visible are left out."""
    found = {}
    for cpu in cpus:
        text = text_of(node, f"{_CPU}/cpu{cpu}/topology/thread_siblings_list")
        if text:
            found[cpu] = parse_list(text)
    return found


def least_shared(
    cpus: Sequence[int], count: int, taken: Mapping[int, int], threads: Mapping[int, tuple[int, ...]]
) -> tuple[tuple[int, int], tuple[int, ...]]:
    """``count`` of the ``cpus``, chosen one after another: that on which the fewest run (``taken``), of several that whose core's other
    hardware ``threads`` have the fewest, of several the first. Beside them how many run on these CPUs already and how many on their cores'
    other threads, those chosen before included; of several sets the smallest shares least. Fewer CPUs than ``count`` give all of them."""
    chosen: list[int] = []
    busy, beside = 0, 0
    for _ in range(min(count, len(cpus))):
        others = {cpu: sum(taken.get(x, 0) + (x in chosen) for x in threads.get(cpu, ()) if x != cpu) for cpu in cpus if cpu not in chosen}
        cpu = min(others, key=lambda one: (taken.get(one, 0), others[one]))
        chosen.append(cpu)
        busy, beside = busy + taken.get(cpu, 0), beside + others[cpu]
    return (busy, beside), tuple(chosen)


def numa_nodes(node: Node, cpus: Sequence[int]) -> dict[int, int]:
    """CPU → number of its NUMA node; CPUs whose node is not visible are left out."""
    numbers = parse_list(text_of(node, f"{_NODES}/online"))
    found = {cpu: number for number in numbers for cpu in parse_list(text_of(node, f"{_NODES}/node{number}/cpulist"))}
    return {cpu: found[cpu] for cpu in cpus if cpu in found}


def simultaneous_multithreading(node: Node, threads: Mapping[int, tuple[int, ...]]) -> bool | None:
    """Whether several hardware threads share a physical core."""
    active = text_of(node, f"{_CPU}/smt/active")
    if any(len(group) > 1 for group in threads.values()) or active == "1":
        return True
    return False if active == "0" or threads else None


def clock(node: Node, cpus: Sequence[int]) -> Clock:
    """Governor (several: joined by '/') and boost, by the interfaces of intel_pstate, amd_pstate and acpi-cpufreq."""
    governors = sorted({text_of(node, f"{_CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {""})
    no_turbo, boost = text_of(node, f"{_CPU}/intel_pstate/no_turbo"), text_of(node, f"{_CPU}/cpufreq/boost")
    state = no_turbo == "0" if no_turbo in ("0", "1") else boost == "1" if boost in ("0", "1") else None
    return Clock("/".join(governors) or None, state)


def steal_share(stat: str) -> float | None:
    """Share of all CPU time since boot that the hypervisor took, from /proc/stat's first line (proc(5)); None: no figure."""
    words = stat.split("\n", 1)[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return None
    times = [int(word) for word in words[1:9]]  # guest time, which follows, is contained in user time
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
    """Sentences on what one core is here, for the reader of a scaling curve. ``threads`` is per physical core."""
    said = []
    if virtualisation:
        taken = "" if steal is None else f", {100 * steal:.2g} % since boot"
        said.append(
            f"A core is a virtual CPU under {virtualisation}: the hypervisor may take time from it (steal{taken}), "
            "and whether it shares a physical core or boosts its clock is not visible."
        )
    if smt:
        said.append(
            f"A core is one of {threads} hardware threads of a physical core: the threads together do less than {threads} cores' work."
        )
    elif smt is False and not virtualisation:
        said.append("A core is a physical core.")
    if numa_nodes is not None and numa_nodes > 1:
        said.append(
            f"The cores belong to {numa_nodes} NUMA nodes: each reaches its own node's memory faster than the others', and a database may "
            "run on one and lie on another."
        )
    if boost:
        said.append("The clock boosts while few cores are busy, so a database alone runs faster than its share of the full host.")
    elif boost is False:
        said.append("The clock does not boost.")
    if cores < logical:
        said.append(f"A CPU quota around pgherd leaves {cores:g} of {logical} CPUs.")
    return " ".join(said)
