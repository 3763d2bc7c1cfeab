"""Completing what is asked of a run's own swap, and adding it to what is prepared: listed by a dry run, confirmed, made by the session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from pgherd.host import swap as host_swap
from pgherd.host.swap_areas import areas
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.run import Swap
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.prepare.prepared_study import Prepared
from pgherd.study.swap_options import SwapRequest


def complete(
    node: Node, asked: SwapRequest, *, size: int, overcommitted: bool, cache: Path, facts: HostFacts, budget: int
) -> tuple[Swap, list[str]]:
    """The run's swap, and sentences on what was chosen.

    ``size`` is what it has if nothing is asked, bytes; ``cache`` where a file lies then. ``budget`` is the run's memory, bytes: zram takes
    its own beside it. Without ``--swap`` it is zram where memory is to be ``overcommitted`` and zram can be had, and else none.

    Raises:
        UsageError: what is asked contradicts itself, or does not fit.
        CapabilityError: what is asked for by name cannot be had here.
    """
    if asked.swap is None and not overcommitted:
        _insist_unused(asked)
        return Swap(kind="none"), []
    if asked.swap == "none":
        _insist_unused(asked)
        said = [f"No swap: none is made, and the containers may not use the host's ({len(areas(node))} areas)."] if areas(node) else []
        return Swap(kind="none"), said
    wanted = _wanted(asked, asked.swap or "zram", parse_bytes(asked.swap_size) if asked.swap_size else size, cache)
    try:
        host_swap.check(node, wanted)
    except CapabilityError as error:
        if asked.swap is not None:
            raise
        return Swap(kind="none"), [f"Warning: no swap for what does not fit: {error}."]
    said = [f"Swap: {wanted.kind} of {format_bytes(wanted.size)}, made for this run; the containers use no more than that."]
    if wanted.kind == "zram":
        said += _room(wanted, facts, budget)
    there = areas(node)
    if there:
        said.append(
            f"Warning: this host has swap of its own ({', '.join(area.path for area in there)}). Its pages and the run's may lie in "
            "either: the kernel fills the run's first. Whatever else swaps on this host disturbs the run."
        )
    return wanted, said


def with_swap(prepared: Prepared, swap: Swap | None) -> Prepared:
    """The same study with its swap: in its surroundings, among the host changes, and among those to be confirmed."""
    if swap is None:
        return prepared
    surroundings = prepared.surroundings.model_copy(update={"swap": swap})
    if swap.kind == "none":
        return replace(prepared, surroundings=surroundings)
    change = described(swap)
    return replace(prepared, surroundings=surroundings, host_changes=(*prepared.host_changes, change), confirm=(*prepared.confirm, change))


def described(swap: Swap) -> str:
    """What making it changes on the host, in words."""
    where = f" in {swap.path}" if swap.path else ""
    limit = f", taking at most {format_bytes(swap.memory)} of memory" if swap.memory else ""
    how = f" compressed by {swap.algorithm}" if swap.algorithm else ""
    kind = "a swap file" if swap.kind == "file" else "compressed swap in memory (zram)"
    return f"{kind} of {format_bytes(swap.size)}{where}{how}{limit}, switched on while the run lasts; swap that is there stays as it is"


def _wanted(asked: SwapRequest, kind: str, size: int, cache: Path) -> Swap:
    if kind != "file" and asked.swap_dir is not None:
        raise UsageError(f"--swap-dir {asked.swap_dir} is for a swap file, and the swap is {kind}; give --swap file, or leave it out")
    if kind != "zram" and (asked.zram_algorithm or asked.zram_mem_limit):
        given = "--zram-algorithm" if asked.zram_algorithm else "--zram-mem-limit"
        raise UsageError(f"{given} is for compressed swap, and the swap is a {kind}; give --swap zram, or leave it out")
    values = {
        "kind": kind,
        "size": size,
        "path": (str(Path(asked.swap_dir).resolve()) if asked.swap_dir else str(cache)) if kind == "file" else None,
        "algorithm": asked.zram_algorithm,
        "memory": parse_bytes(asked.zram_mem_limit) if asked.zram_mem_limit else None,
    }
    try:
        return Swap.model_validate(values)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(f"such swap cannot be made: {reason}; check --swap-size, --zram-mem-limit and --zram-algorithm") from None


def _insist_unused(asked: SwapRequest) -> None:
    for name in ("swap_size", "swap_dir", "zram_algorithm", "zram_mem_limit"):
        value = getattr(asked, name)
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {value} says how swap is to be made, and none is; leave it out, or give --swap zram or file")


def _room(swap: Swap, facts: HostFacts, budget: int) -> list[str]:
    """What is to be said of the memory that zram itself takes."""
    spare = facts.memory_available - budget
    most = swap.memory or swap.size
    if most <= spare:
        return []
    return [
        f"Warning: zram may take up to {format_bytes(most)} of memory if nothing can be compressed, and {format_bytes(max(spare, 0))} are "
        "left beside the run's budget; --zram-mem-limit bounds it."
    ]
