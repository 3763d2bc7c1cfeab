"""A study of the storage in words: the answer, what the two views disagree on, and why. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pgherd.model.finding import Finding
from pgherd.studies.io_profile.observed import Observed
from pgherd.studies.io_profile.options import StorageOptions

DISAGREE = 1.25
"""Ratio of two views from which on their difference is said."""
SEVERAL = 2
"""Checkpoints that a trial should hold at least."""


def answer(options: StorageOptions, findings: Mapping[str, Finding]) -> str:
    """The sentence for one server."""
    tps = _number(findings.get("throughput"), "{:,.0f} tps")
    parts = [f"At {tps}" if tps else "Of this server"]
    if options.io_bound is not None:
        iops, fast = _number(findings.get("iops"), "{:,.0f} IOPS"), _number(findings.get("under_1ms"), "{:.1f} %")
        parts[0] += f" the data's devices served {iops or 'an unknown number of IOPS'}"
        parts[0] += f", {fast} of them in under 1 ms" if fast else "; the share under 1 ms is unknown"
        return f"{parts[0]}."
    found = findings.get("stalls")
    if found is None or found.value is None:
        parts[0] += " nothing can be said of stalls of the WAL"
    elif found.value == 0:
        parts[0] += " no stall of WAL writing was seen"
    else:
        tied = findings["stalls_in_checkpoints"].value or 0.0
        parts[0] += f" WAL writing stalled {found.value:.2g} × in a trial, {tied:.2g} of it in checkpoints"
    ratio = findings.get("p95_ratio")
    if ratio is not None and ratio.value is not None:
        parts.append(f"p95 latency inside of checkpoints is {ratio.value:.2f} × that outside")
    burst = findings.get("burst_ratio")
    if burst is not None and burst.value is not None:
        parts.append(f"data are written in bursts of {burst.value:.1f} × the WAL's rate")
    return "; ".join(parts) + "."


def stalls_of(by_side: Mapping[str, Sequence[Observed]]) -> str:
    """How often each variant stalled; '' where nothing can be said."""
    found = []
    for side, trials in by_side.items():
        known = [one for one in trials if one.stalls is not None]
        if not known:
            continue
        stalled = sum(len(one.stalls or ()) for one in known)
        tied = sum(stall.checkpoint is not None for one in known for stall in one.stalls or ())
        many = "no stall" if not stalled else f"{stalled} stall{'' if stalled == 1 else 's'} ({tied} in checkpoints)"
        found.append(f"{side} had {many} in {len(known)} trial{'' if len(known) == 1 else 's'}")
    return "WAL writing: " + ", ".join(found) if found else ""


def served_of(rows: Sequence[Mapping[str, object]]) -> str:
    """What the data's devices served of each variant, beyond the memory; '' where nothing can be said."""
    found = []
    for row in rows:
        iops, fast = row.get("iops"), row.get("under_1ms")
        if isinstance(iops, Finding) and iops.value is not None:
            share = _number(fast if isinstance(fast, Finding) else None, ", {:.1f} % of them in under 1 ms")
            found.append(f"{_number(iops, '{:,.0f} IOPS')} with {row['server']}{share}")
    return "the data's devices served " + "; ".join(found) if found else ""


def warnings(options: StorageOptions, by_side: Mapping[str, Sequence[Observed]]) -> list[str]:
    """What is missing, and where PostgreSQL and the devices disagree; with the variants of which that is so, where not of all."""
    said: dict[str, list[str]] = {}
    for side, trials in by_side.items():
        for sentence in _warnings(options, trials):
            said.setdefault(sentence, []).append(side)
    return [sentence if len(sides) == len(by_side) else f"{', '.join(sides)}: {sentence}" for sentence, sides in said.items()]


def _warnings(options: StorageOptions, trials: Sequence[Observed]) -> list[str]:
    if not trials:
        return ["no trial finished with an I/O view"]
    found = []
    counts = [len(one.checkpoints) for one in trials]
    if options.io_bound is None and statistics.median(counts) < SEVERAL:
        found.append(
            f"a trial held {statistics.median(counts):g} checkpoint{'' if statistics.median(counts) == 1 else 's'}, and fewer than "
            f"{SEVERAL} say little of them; give more --seconds, or less --checkpoint-every"
        )
    if options.io_bound is None and not all(one.apart for one in trials):
        found.append(
            "no device is the WAL's alone: what it sees is not known, and a stall is seen by the flushes of data and WAL; "
            "--wal-dir puts the WAL on another device, which must not have a loop device of the data on it either"
        )
    if any(one.through for one in trials):
        found.append(
            "the WAL's device passes its requests on to the data's, as a loop device on a file there does: what the data's device sees is "
            "of both, and is not held against the WAL or PostgreSQL's own numbers"
        )
    return found + disagreements(trials)


def disagreements(trials: Sequence[Observed]) -> list[str]:
    """Sentences on what PostgreSQL says it wrote and what the devices say they did, where these differ by more than DISAGREE."""
    found = []
    generated, written = _mean([one.wal_generated for one in trials]), _mean([one.wal_written for one in trials])
    if generated and written and not 1 / DISAGREE <= written / generated <= DISAGREE:
        why = (
            "each commit writes whole pages of 8 kB and the file system its journal, however little WAL is new"
            if written > generated
            else "WAL stays in the page cache until it is synced"
        )
        found.append(
            f"PostgreSQL generated {generated:.2f} MB/s of WAL (pg_stat_wal), its device wrote {written:.2f} MB/s (/proc/diskstats): {why}"
        )
    told = _mean([one.relations_written for one in trials])
    name = "pg_stat_io"
    if told is None:
        told, name = _mean([one.checkpoint_written for one in trials]), "its checkpointer's statistics"
    seen = _mean([one.data_written for one in trials])
    if told and seen and not 1 / DISAGREE <= seen / told <= DISAGREE:
        why = (
            "the page cache takes what is written and writes the same page once for several times"
            if seen < told
            else "the file system's journal and metadata, and other programs, write there too, or other processes than the checkpointer do"
        )
        found.append(f"PostgreSQL wrote {told:.2f} MB/s of relations ({name}), the data's device {seen:.2f} MB/s (/proc/diskstats): {why}")
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _number(finding: Finding | None, form: str) -> str:
    return "" if finding is None or finding.value is None else form.format(finding.value)
