"""Swap of a run: complete the user's options, and add the swap to a prepared study.

A dry run lists the swap. The user confirms it, and the run session creates it.
"""

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
    """Return the run's swap, and messages about the choice.

    ``size`` (bytes) and ``cache`` (directory of a swap file) are the defaults. ``budget`` is the run's memory in bytes. The memory of
    zram is not part of it. Without ``--swap`` the swap is zram if memory is ``overcommitted`` and this host supports zram, otherwise
    none.

    Raises:
        UsageError: options contradict each other, or a value is invalid.
        CapabilityError: this host cannot create the swap of ``--swap``.
    """
    if asked.swap is None and not overcommitted:
        _require_unused(asked)
        return Swap(kind="none"), []
    if asked.swap == "none":
        _require_unused(asked)
        count = len(areas(node))
        messages = [f"No swap: the run creates none, and the containers cannot use the host's swap ({count} areas)."] if count else []
        return Swap(kind="none"), messages
    requested = _requested(asked, asked.swap or "zram", parse_bytes(asked.swap_size) if asked.swap_size else size, cache)
    try:
        host_swap.check(node, requested)
    except CapabilityError as error:
        if asked.swap is not None:
            raise
        return Swap(kind="none"), [f"Warning: no swap for memory that does not fit: {error}."]
    messages = [f"Swap: {requested.kind} of {format_bytes(requested.size)}, created for this run. The containers use at most this swap."]
    if requested.kind == "zram":
        messages += _zram_warning(requested, facts, budget)
    host_areas = areas(node)
    if host_areas:
        messages.append(
            f"Warning: this host already has swap ({', '.join(area.path for area in host_areas)}). The kernel fills the run's swap first, "
            "so pages of the run and of other programs can be in either. Other programs that swap disturb the run."
        )
    return requested, messages


def with_swap(prepared: Prepared, swap: Swap | None) -> Prepared:
    """Return the study with this swap in its surroundings, in its host changes, and in the changes that the user must confirm."""
    if swap is None:
        return prepared
    surroundings = prepared.surroundings.model_copy(update={"swap": swap})
    if swap.kind == "none":
        return replace(prepared, surroundings=surroundings)
    change = described(swap)
    return replace(prepared, surroundings=surroundings, host_changes=(*prepared.host_changes, change), confirm=(*prepared.confirm, change))


def described(swap: Swap) -> str:
    """Describe the host change that creates the swap."""
    where = f" in {swap.path}" if swap.path else ""
    limit = f", taking at most {format_bytes(swap.memory)} of memory" if swap.memory else ""
    how = f" compressed by {swap.algorithm}" if swap.algorithm else ""
    kind = "a swap file" if swap.kind == "file" else "compressed swap in memory (zram)"
    return f"{kind} of {format_bytes(swap.size)}{where}{how}{limit}, switched on during the run; existing swap is left unchanged"


def _requested(asked: SwapRequest, kind: str, size: int, cache: Path) -> Swap:
    if kind != "file" and asked.swap_dir is not None:
        raise UsageError(f"--swap-dir {asked.swap_dir} is for a swap file, but the swap is {kind}; add --swap file, or leave it out")
    if kind != "zram" and (asked.zram_algorithm or asked.zram_mem_limit):
        given = "--zram-algorithm" if asked.zram_algorithm else "--zram-mem-limit"
        raise UsageError(f"{given} is for compressed swap, but the swap is a {kind}; add --swap zram, or leave it out")
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
        raise UsageError(f"the swap is invalid: {reason}; check --swap-size, --zram-mem-limit and --zram-algorithm") from None


def _require_unused(asked: SwapRequest) -> None:
    for name in ("swap_size", "swap_dir", "zram_algorithm", "zram_mem_limit"):
        value = getattr(asked, name)
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {value} is set, but the run creates no swap; leave it out, or add --swap zram or --swap file")


def _zram_warning(swap: Swap, facts: HostFacts, budget: int) -> list[str]:
    """Return a warning if zram may need more memory than the run's ``budget`` (bytes) leaves free."""
    spare = facts.memory_available - budget
    maximum = swap.memory or swap.size
    if maximum <= spare:
        return []
    return [
        f"Warning: zram may take up to {format_bytes(maximum)} of memory if pages do not compress, but only "
        f"{format_bytes(max(spare, 0))} are free outside the run's budget; --zram-mem-limit limits it."
    ]
