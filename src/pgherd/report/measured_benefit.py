"""What this host's own runs say that a change of practice was worth: comparisons whose variants differ in that one thing, and
consolidation schemes beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pgherd.model.errors import RunDirectoryError
from pgherd.model.facts import Worth
from pgherd.model.run import RunRecord
from pgherd.store.run_directory import RunDirectory
from pgherd.study.registry import studies, study_of

CHECKS: Mapping[str, tuple[str, ...]] = {
    "devices-apart": ("wal_dir", "volumes", "roles"),
    "shared-buffers": ("settings.shared_buffers",),
    "huge-pages": ("huge_pages", "settings.huge_pages"),
    "checkpoint-spread": ("settings.checkpoint_completion_target",),
    "max-wal-size": ("settings.max_wal_size",),
    "wal-compression": ("settings.wal_compression",),
    "checksums": ("checksums",),
    "fsync": ("settings.fsync",),
    "full-page-writes": ("settings.full_page_writes",),
    "autovacuum": ("settings.autovacuum",),
    "synchronous-commit": ("settings.synchronous_commit",),
    "transparent-huge-pages": ("transparent_huge_pages",),
}
"""Check → the options by which the variants of a comparison differ."""

_BESIDES = frozenset({"seed", "budget_seconds", "max_reruns", "precision", "repeats", "repeats_one", "thresholds", "huge_page_bytes"})
_PLACES = frozenset(CHECKS["devices-apart"])
_MOST = 3
"""Runs to name for one check: the latest."""


def measured_benefits(runs: Path, hostname: str) -> dict[str, list[Worth]]:
    """Check → what the runs below ``runs`` of this host say, the latest first. Runs that cannot be read are passed over."""
    found: dict[str, list[Worth]] = {}
    if not runs.is_dir():
        return found
    for directory in reversed(RunDirectory.all(runs)):
        try:
            record = directory.record()
        except RunDirectoryError:
            continue
        if hostname in {host.hostname for host in record.hosts.values()}:
            for check, worth in of_run(record):
                if len(found.setdefault(check, [])) < _MOST:
                    found[check].append(worth)
    return found


def of_run(record: RunRecord) -> list[tuple[str, Worth]]:
    """(check, what it was worth) of one finished run: a comparison that changed several things at once says nothing of each."""
    own = study_of(record.study).hook("figures_benefit", "benefits") if record.study in studies() else None
    if own is not None:
        return [(check, Worth(run=record.run, text=text)) for check, text in own(record)]
    arms = record.options.get("arms")
    if record.analysis is None or not isinstance(arms, list | tuple):
        return []
    options = {str(arm.get("name")): arm.get("options") or {} for arm in arms if isinstance(arm, dict)}
    baseline = str(record.options.get("baseline") or next(iter(options), ""))
    told = []
    for row in record.analysis.tables.get("comparison", []):
        variant, ratio = str(row.get("variant")), row.get("ratio")
        value = getattr(ratio, "value", None)
        if variant not in options or baseline not in options or row.get("metric") != "throughput" or value is None:
            continue
        changed = differing(options[baseline], options[variant])
        for check, names in CHECKS.items():
            if changed and set(changed) <= set(names):
                told.append((check, Worth(run=record.run, text=_sentence(changed, ratio, record))))
    return told


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs between two arms' options: name → (old, new); settings as ``settings.NAME``."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*old, *new} - {"settings", *_BESIDES}):
        if old.get(name) != new.get(name):
            found[name] = (old.get(name), new.get(name))
    first, second = old.get("settings") or {}, new.get("settings") or {}
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            found[f"settings.{name}"] = (first.get(name), second.get(name))
    return found


def _sentence(changed: Mapping[str, tuple[Any, Any]], ratio: Any, record: RunRecord) -> str:
    shown = [f"{name.removeprefix('settings.')} {_said(old)} → {_said(new)}" for name, (old, new) in changed.items() if name not in _PLACES]
    if _PLACES & set(changed):
        shown.append(" → ".join(_place({name: changed[name][side] for name in _PLACES & set(changed)}) for side in (0, 1)))
    return f"{', '.join(shown)}: {change_text(ratio, record)}"


def change_text(ratio: Any, record: RunRecord) -> str:
    """A ratio of throughputs as a change with its interval, of which workload, and how much it may be believed."""
    between = (
        "no interval" if ratio.low is None or ratio.high is None else f"{_percent(ratio.low)} to {_percent(ratio.high)}, n = {ratio.n}"
    )
    workload = _workload(record.options.get("arms") or [{"options": record.options}])
    grade = record.analysis.grade if record.analysis is not None else "C"
    weight = ": an indication only" if grade == "C" else ""
    return f"throughput {_percent(ratio.value)} ({between}){workload}, grade {grade}{weight}"


def _place(options: Mapping[str, Any]) -> str:
    """Where the parts of a server lie, by the options of one arm that say it: ``WAL on /wal``, ``WAL on a loop device``."""
    volumes = {str(one.get("name")): one for one in options.get("volumes") or ()}
    parts = [f"WAL on {options['wal_dir']}"] if options.get("wal_dir") else []
    for role, name in (options.get("roles") or {}).items():
        one = volumes.get(str(name), {})
        where = "a loop device" if one.get("kind") == "loop" else one.get("path") or f"volume {name}"
        parts.append(f"{'WAL' if role == 'wal' else role} on {where}")
    return ", ".join(parts) or "all in one place"


def _workload(arms: Iterable[Any]) -> str:
    names: set[str] = set()
    for options in (arm.get("options") or {} for arm in arms if isinstance(arm, dict)):
        sources = {str(one.get("source")) for one in options.get("scripts") or () if str(one.get("source")).startswith("builtin:")}
        names |= {source.removeprefix("builtin:") for source in sources} or {str(options.get("workload"))} - {"None"}
    return f", workload {', '.join(sorted(names))}" if names else ""


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _said(value: Any) -> str:
    return "the default" if value is None else str(value)
