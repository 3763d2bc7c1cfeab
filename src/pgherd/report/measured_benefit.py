"""Measured benefits of recommendations by this host's runs: variants that differ in one option, and layouts of a consolidation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pgherd.model.errors import RunDirectoryError
from pgherd.model.host_facts import MeasuredBenefit
from pgherd.model.run import RunRecord
from pgherd.store.run_directory import RunDirectory
from pgherd.study.study import studies, study_of

CHECKS: Mapping[str, tuple[str, ...]] = {
    "separate-wal-device": ("volumes", "roles"),
    "shared-buffers": ("settings.shared_buffers",),
    "huge-pages": ("huge_pages", "settings.huge_pages", "settings.huge_page_size", "transparent_huge_pages"),
    "checkpoint-completion-target": ("settings.checkpoint_completion_target",),
    "max-wal-size": ("settings.max_wal_size",),
    "wal-compression": ("settings.wal_compression",),
    "data-checksums": ("data_checksums",),
    "fsync": ("settings.fsync",),
    "full-page-writes": ("settings.full_page_writes",),
    "autovacuum": ("settings.autovacuum",),
    "synchronous-commit": ("settings.synchronous_commit",),
}
"""Check → the options by which the variants of a comparison may differ."""
_INCIDENTAL = frozenset({"settings.huge_page_size", "transparent_huge_pages"})
"""Options that differ with an option of a check, and measure no benefit of it by themselves."""
_IRRELEVANT = frozenset({"seed", "time_budget", "max_reruns", "precision", "repeats", "fixed_repeats", "thresholds", "huge_page_bytes"})
_VOLUME_OPTIONS = frozenset(CHECKS["separate-wal-device"])
_MAX_RUNS = 3
"""Maximum number of runs per check, the latest."""


def measured_benefits(runs: Path, hostname: str) -> dict[str, list[MeasuredBenefit]]:
    """Return check → measured benefits by the runs below ``runs`` of this host, latest first. Unreadable runs are skipped."""
    benefits: dict[str, list[MeasuredBenefit]] = {}
    if not runs.is_dir():
        return benefits
    for directory in reversed(RunDirectory.all(runs)):
        try:
            record = directory.record()
        except RunDirectoryError:
            continue
        if hostname in {host.hostname for host in record.hosts.values()}:
            for check, benefit in of_run(record):
                if len(benefits.setdefault(check, [])) < _MAX_RUNS:
                    benefits[check].append(benefit)
    return benefits


def of_run(record: RunRecord) -> list[tuple[str, MeasuredBenefit]]:
    """Return (check, benefit) of one finished run. A comparison that changed several options measures the benefit of none."""
    hook = study_of(record.study).hook("study", "benefits") if record.study in studies() else None
    if hook is not None:
        return [
            (check, MeasuredBenefit(run=record.run, text=f"{change}: {change_text(ratio, record)}"))
            for check, change, ratio in hook(record)
        ]
    variants = record.options.get("variants")
    if record.analysis is None or not isinstance(variants, list | tuple):
        return []
    options = {str(item.get("name")): item.get("options") or {} for item in variants if isinstance(item, dict)}
    baseline = str(record.options.get("baseline") or next(iter(options), ""))
    benefits = []
    for row in record.analysis.tables.get("comparison", []):
        variant, ratio = str(row.get("variant")), row.get("ratio_to_baseline")
        value = getattr(ratio, "value", None)
        if variant not in options or baseline not in options or row.get("metric") != "throughput" or value is None:
            continue
        changed = differing(options[baseline], options[variant])
        for check, names in CHECKS.items():
            if set(changed) - _INCIDENTAL and set(changed) <= set(names):
                benefits.append((check, MeasuredBenefit(run=record.run, text=_sentence(changed, ratio, record))))
    return benefits


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differing options of two variants: name → (old, new), settings as ``settings.NAME``."""
    changed: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*old, *new} - {"settings", *_IRRELEVANT}):
        if old.get(name) != new.get(name):
            changed[name] = (old.get(name), new.get(name))
    first, second = old.get("settings") or {}, new.get("settings") or {}
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            changed[f"settings.{name}"] = (first.get(name), second.get(name))
    return changed


def _sentence(changed: Mapping[str, tuple[Any, Any]], ratio: Any, record: RunRecord) -> str:
    texts = [
        f"{name.removeprefix('settings.')} {_value(old)} → {_value(new)}"
        for name, (old, new) in changed.items()
        if name not in _VOLUME_OPTIONS
    ]
    if _VOLUME_OPTIONS & set(changed):
        texts.append(" → ".join(_volumes({name: changed[name][i] for name in _VOLUME_OPTIONS & set(changed)}) for i in (0, 1)))
    return f"{', '.join(texts)}: {change_text(ratio, record)}"


def change_text(ratio: Any, record: RunRecord) -> str:
    """Return a ratio of throughputs as a change with its interval, workload and grade."""
    interval = (
        "no interval" if ratio.low is None or ratio.high is None else f"{_percent(ratio.low)} to {_percent(ratio.high)}, n = {ratio.n}"
    )
    workload = _workload(record.options.get("variants") or [{"options": record.options}])
    grade = record.analysis.grade if record.analysis is not None else "C"
    caveat = ": an indication only" if grade == "C" else ""
    return f"throughput {_percent(ratio.value)} ({interval}){workload}, grade {grade}{caveat}"


def _volumes(options: Mapping[str, Any]) -> str:
    """Return the volumes of a server by the options of one variant: ``WAL on /wal``, ``WAL on a loop device``."""
    volumes = {str(volume.get("name")): volume for volume in options.get("volumes") or ()}
    parts: list[str] = []
    for role, name in (options.get("roles") or {}).items():
        volume = volumes.get(str(name), {})
        where = "a loop device" if volume.get("kind") == "loop" else volume.get("path") or f"volume {name}"
        parts.append(f"{'WAL' if role == 'wal' else role} on {where}")
    return ", ".join(parts) or "all on one volume"


def _workload(variants: Iterable[Any]) -> str:
    names: set[str] = set()
    for options in (item.get("options") or {} for item in variants if isinstance(item, dict)):
        sources = {str(script.get("source")) for script in options.get("scripts") or () if str(script.get("source")).startswith("builtin:")}
        names |= {source.removeprefix("builtin:") for source in sources} or {str(options.get("workload"))} - {"None"}
    return f", workload {', '.join(sorted(names))}" if names else ""


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _value(value: Any) -> str:
    return "default" if value is None else str(value)
