"""Completion of a hugepages request: the kinds of pages of this host, the scale of the database, and the options of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgherd.host import huge_pages as host_pages
from pgherd.host.facts import gather
from pgherd.model.capabilities import capabilities_of
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import configuration, settings
from pgherd.postgres.huge_pages import settings_for
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.runner.execute import perf_counters
from pgherd.studies.compare import prepare as comparison
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.hugepages.options import NONE, THP, HugepagesOptions, HugepagesRequest
from pgherd.studies.hugepages.study import STUDY
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.study import StudyCapability
from pgherd.workloads.registry import find

PREFERRED_SIZES = (2 * 2**20, 2**30)
"""Sizes of huge pages to compare. If the kernel has neither, all its sizes are compared."""
SCALES = (30, 20, 10)
"""Scales to choose from, largest first. The largest is about 450 MB, 35 times the reach of a TLB with 3072 entries and pages of 4 kB. A
larger database would take too long to read into memory after each restart."""
SHARED_BUFFERS_SHARE = 0.25
"""Maximum default size of shared buffers, as a share of the free memory. The page cache holds the same files again."""
CLIENTS = 10
"""Default number of clients, as in E9. Every connection has separate page tables."""
TIME_BUDGET_S = 440.0
"""Time budget in seconds of all trials. With the load of the database and the report, a default run ends within eight minutes.

Three variants need seven blocks to differ from the baseline. They fit if a restart, including the read of the data, takes at most 3.5 s.
Up to 2.4 s, 70 % of the time is measurement. New connections fill their page tables during the warm-up.
"""
_IN_GUESTS = (
    "hugepages compares pages of this host's kernel, but a server in a guest uses the kernel of the guest; to compare guests on huge "
    "pages, use 'pgherd compare --runtime vm --variant ordinary --variant huge:vm-huge-pages=2MB'"
)


def capability(node: Node, facts: HostFacts) -> StudyCapability:
    """Check the kernel's page sizes, and whether pgherd can reserve pages."""
    sizes = " and ".join(facts.huge_pages)
    pages = f"a server on normal pages and on huge pages of {sizes}" if sizes else STUDY.capability
    if not facts.huge_pages and facts.transparent_huge_pages is None:
        return StudyCapability(STUDY.name, "unavailable", pages, "a kernel with huge pages (CONFIG_HUGETLBFS)")
    if facts.root:
        return StudyCapability(STUDY.name, "available", pages)
    reserved = any(facts.huge_pages.values())
    missing = "run pgherd as root to reserve pages, or write their number to /sys/kernel/mm/hugepages/*/nr_hugepages as root"
    return StudyCapability(STUDY.name, "limited" if reserved else "unavailable", pages, missing)


def prepare(node: Node, request: HugepagesRequest, dry: bool) -> PreparedStudy:
    """Complete the request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    if request.runtime is not None and capabilities_of(request.runtime).own_kernel:
        raise CapabilityError(_IN_GUESTS)
    facts = gather(node)
    scale, scale_notes = _scale(request, facts)
    kinds, omitted = _kinds(node, request, scale)
    if len(kinds) < 2:
        raise UsageError(f"--page-sizes names only {kinds[0]}; give at least two kinds of pages, such as --page-sizes none,2MB")
    compare_request = _compare_request(request, kinds, scale)
    prepared = comparison.prepare(node, compare_request, dry)
    assert isinstance(prepared.options, CompareOptions)
    perf = perf_counters.able(node)
    options = HugepagesOptions(
        **prepared.options.model_dump(),
        counters_unavailable="" if perf.events else perf.why_not,
        page_sizes={kind: parse_bytes(kind) for kind in kinds if kind not in (NONE, THP)},
    )
    counted = (
        f"TLB misses and page walks by perf: {', '.join(perf.events)}." if perf.events else f"TLB misses are not measured: {perf.why_not}."
    )
    return replace(
        prepared, study="hugepages", options=options, defaults_chosen=(*prepared.defaults_chosen, *scale_notes, *omitted, counted)
    )


def _scale(request: HugepagesRequest, facts: HostFacts) -> tuple[int | None, list[str]]:
    """Return the scale, and a sentence if pgherd chooses it.

    The scale is None if an SQL file of the user fills the database.
    """
    if request.scale is not None or request.init_script:
        return request.scale, []
    memory = request.host_memory if request.host_memory is not None else facts.memory_available
    limit = request.memory / 2 if request.memory is not None else memory * SHARED_BUFFERS_SHARE
    fitting = [scale for scale in SCALES if settings.buffers_for(_size(scale), False) <= limit]
    scale = fitting[0] if fitting else SCALES[-1]
    whole = fitting and request.settings_from is None and "shared_buffers" not in configuration.parse_set(request.set)
    return scale, [f"Scale {scale}: about {format_bytes(_size(scale))}{', all of it in shared buffers' if whole else ''}."]


def _size(scale: int) -> int:
    return find("pgbench").size_estimate(scale) or 0


def _kinds(node: Node, request: HugepagesRequest, scale: int | None) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of the kinds of pages to compare, and sentences on the kinds that this host cannot provide.

    Kinds that the user names are not checked here. If one is not available, the completion of its variant fails.

    Raises:
        UsageError: a name is not a kind of pages, or is given twice.
        CapabilityError: this host can provide only ordinary pages.
    """
    if request.page_sizes:
        names = tuple(_canonical_name(kind) for kind in request.page_sizes)
        twice = sorted({kind for kind in names if names.count(kind) > 1})
        if twice:
            raise UsageError(f"--page-sizes {','.join(request.page_sizes)}: {twice[0]} is given twice; give each kind once")
        return (names if len(names) > 1 or names == (NONE,) else (NONE, *names)), []
    kinds, refused = [NONE], []
    pools = host_pages.pools(node)
    buffers = settings.buffers_for(_size(scale or SCALES[-1]), False)
    for size in [size for size in pools if size in PREFERRED_SIZES] or list(pools):
        try:
            host_pages.check(node, {size: -(-buffers // size) + 1})
        except CapabilityError as error:
            refused.append(f"Left out: {host_pages.label(size)}: {error}.")
        else:
            kinds.append(host_pages.label(size))
    try:
        host_pages.check_transparent(node, True)
    except CapabilityError as error:
        refused.append(f"Left out: thp: {error}.")
    else:
        kinds.append(THP)
    if len(kinds) < 2:
        reasons = " ".join(sentence.removeprefix("Left out: ") for sentence in refused) or "the kernel has none."
        raise CapabilityError(f"this host cannot provide huge pages. {reasons}")
    return tuple(kinds), refused


def _canonical_name(kind: str) -> str:
    """Return a kind of pages in its canonical spelling. Raises UsageError if it is not a page size."""
    name = kind.strip()
    if name.lower() in (NONE, "off", "4kb"):
        return NONE
    if name.lower() == THP:
        return THP
    settings_for(name)  # raises UsageError if it is not a page size
    return host_pages.label(parse_bytes(name))


def _compare_request(request: HugepagesRequest, kinds: Sequence[str], scale: int | None) -> CompareRequest:
    """Return the request of the comparison, with a variant for each kind of pages and the other options of the user."""
    set_fields: dict[str, Any] = {
        name: getattr(request, name) for name in request.model_fields_set - {"page_sizes", "huge_pages", "repeats", "min_repeats"}
    }
    defaults: dict[str, Any] = {
        "duration": request.duration,
        "warmup": request.warmup,
        "time_budget": None if request.max_blocks else f"{TIME_BUDGET_S:g}s",
    }
    defaults |= {"clients": CLIENTS} if request.clients is None else {}
    defaults |= {"scale": scale} if scale is not None else {}
    if request.workload == "select-only" and not request.script:
        defaults["start_state"] = "restarted"  # the load does not write, and a restart changes the kind of pages
    variants = tuple(f"{kind}:huge-pages={'off' if kind == NONE else kind}" for kind in kinds)
    fields = {name: value for name, value in {**defaults, **set_fields}.items() if value is not None}
    return CompareRequest.model_validate({**fields, "variant": variants})
