"""Completing a comparison of pages: which kinds this host can give, a server large enough for them to matter, and the rest as any
comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgherd.host import huge_pages as host_pages
from pgherd.host.facts import gather
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import configuration, settings
from pgherd.postgres.huge_pages import settings_for
from pgherd.prepare.prepared_study import Prepared
from pgherd.runner.play import counters
from pgherd.studies.compare import prepare as comparison
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.hugepages.options import NONE, THP, HugepagesOptions, HugepagesRequest
from pgherd.study.comparison.options import CompareOptions
from pgherd.workloads.registry import find

WANTED = (2 * 2**20, 2**30)
"""The sizes that are compared where the kernel has them; on a kernel with neither, all that it has."""
SCALES = (30, 20, 10)
"""Scales to choose from, largest first: about 450 MB, thirty-five times what a TLB of 3072 entries reaches with pages of 4 kB. A larger
one takes longer to read into ordinary pages after each restart than leaves most of the time to the measurement."""
MEMORY_SHARE = 0.25
"""Most of the host's free memory that the server's buffers take by default: the files are in the page cache beside them."""
CLIENTS = 10
"""As E9. Every connection has page tables of its own."""
BUDGET = 440.0
"""Seconds for all trials: with the load of the database and the report a default run ends within eight minutes."""
"""Three variants need seven blocks to be told from the baseline, and these fit where a restart, with reading the data back, takes up to
3.5 s; up to 2.4 s 70 % of the time is spent measuring. New connections fill their page tables in the ramp, as far as the time goes."""
_IN_GUESTS = (
    "hugepages compares the pages that this machine's kernel gives to a server, and a server in a guest has the guest's own kernel; whole "
    "guests on huge pages are compared by 'pgherd compare --runtime vm --variant ordinary --variant huge:guest-pages=2MB'"
)


def prepare(node: Node, asked: HugepagesRequest, dry: bool) -> Prepared:
    """Complete the request for this host; see ``runner.catalogue.prepare`` for what it raises."""
    if asked.runtime == "vm":
        raise CapabilityError(_IN_GUESTS)
    facts = gather(node)
    scale, said = _scale(asked, facts)
    kinds, left_out = _kinds(node, asked, scale)
    if len(kinds) < 2:
        raise UsageError(f"only {kinds[0]} is to be measured; name another kind of pages beside it, such as --page-sizes none,2MB")
    request = _request(asked, kinds, scale)
    prepared = comparison.prepare(node, request, dry)
    assert isinstance(prepared.options, CompareOptions)
    able = counters.able(node)
    options = HugepagesOptions(
        **prepared.options.model_dump(),
        uncounted="" if able.events else able.why_not,
        page_sizes={kind: parse_bytes(kind) for kind in kinds if kind not in (NONE, THP)},
    )
    counted = (
        f"TLB misses and page walks by perf: {', '.join(able.events)}." if able.events else f"TLB misses stay unknown: {able.why_not}."
    )
    return replace(prepared, study="hugepages", options=options, choices=(*prepared.choices, *said, *left_out, counted))


def _scale(asked: HugepagesRequest, facts: HostFacts) -> tuple[int | None, list[str]]:
    """The scale, and a sentence where it was chosen; None where the user's own SQL file fills the database."""
    if asked.scale is not None or asked.init_script:
        return asked.scale, []
    memory = parse_bytes(asked.host_memory) if asked.host_memory else facts.memory_available
    limit = parse_bytes(asked.memory) / 2 if asked.memory else memory * MEMORY_SHARE
    fitting = [scale for scale in SCALES if settings.buffers_for(_size(scale), False) <= limit]
    scale = fitting[0] if fitting else SCALES[-1]
    whole = fitting and asked.settings_from is None and "shared_buffers" not in configuration.parse_set(asked.set)
    return scale, [f"Scale {scale}: about {format_bytes(_size(scale))}{', all of it in shared buffers' if whole else ''}."]


def _size(scale: int) -> int:
    return find("pgbench").size_estimate(scale) or 0


def _kinds(node: Node, asked: HugepagesRequest, scale: int | None) -> tuple[tuple[str, ...], list[str]]:
    """The kinds of pages to compare, by name, and sentences on those that are left out because this host cannot give them.

    What was asked for by name is not looked at here: that it cannot be had is an error of its arm.

    Raises:
        UsageError: a kind is none, or stands twice.
        CapabilityError: this host can give no kind but the ordinary one.
    """
    if asked.page_sizes:
        named = tuple(_named(kind) for kind in asked.page_sizes)
        twice = sorted({kind for kind in named if named.count(kind) > 1})
        if twice:
            raise UsageError(f"--page-sizes {','.join(asked.page_sizes)}: {twice[0]} stands twice")
        return (named if len(named) > 1 or named == (NONE,) else (NONE, *named)), []
    found, refused = [NONE], []
    there = host_pages.pools(node)
    buffers = settings.buffers_for(_size(scale or SCALES[-1]), False)
    for size in [size for size in there if size in WANTED] or list(there):
        try:
            host_pages.check(node, {size: -(-buffers // size) + 1})
        except CapabilityError as error:
            refused.append(f"Left out: {host_pages.label(size)}: {error}.")
        else:
            found.append(host_pages.label(size))
    try:
        host_pages.check_transparent(node, True)
    except CapabilityError as error:
        refused.append(f"Left out: thp: {error}.")
    else:
        found.append(THP)
    if len(found) < 2:
        reasons = " ".join(sentence.removeprefix("Left out: ") for sentence in refused) or "the kernel has none."
        raise CapabilityError(f"this host can give a server no huge pages. {reasons}")
    return tuple(found), refused


def _named(kind: str) -> str:
    """A kind as the user wrote it, in the spelling that is shown."""
    word = kind.strip()
    if word.lower() in (NONE, "off", "4kb"):
        return NONE
    if word.lower() == THP:
        return THP
    settings_for(word)  # insists on a page size
    return host_pages.label(parse_bytes(word))


def _request(asked: HugepagesRequest, kinds: Sequence[str], scale: int | None) -> CompareRequest:
    """The comparison: one variant for each kind of pages, all else as asked, in trials long enough."""
    given: dict[str, Any] = {name: getattr(asked, name) for name in asked.model_fields_set - {"page_sizes", "huge_pages", "repeats"}}
    defaults: dict[str, Any] = {
        "duration": asked.duration,
        "warmup": asked.warmup,
        "time_budget": None if asked.max_blocks else f"{BUDGET:g}s",
    }
    defaults |= {"clients": CLIENTS} if asked.clients is None else {}
    defaults |= {"scale": scale} if scale is not None else {}
    if asked.workload == "select-only" and not asked.script:
        defaults["start_state"] = "restarted"  # nothing writes, and pages change with a restart
    variants = tuple(f"{kind}:huge-pages={'off' if kind == NONE else kind}" for kind in kinds)
    known = {name: value for name, value in {**defaults, **given}.items() if value is not None}
    return CompareRequest.model_validate({**known, "variant": variants})
