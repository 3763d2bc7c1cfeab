"""Results of an external server: WAL, checkpoints and I/O by its statistics. Its devices and its log are not visible. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.model.analysis import Finding
from pgherd.studies.io_profile.trial_profile import TrialProfile

DEVICES = "the devices of an external server are not visible here"
LOG = "the log of an external server is not visible here, so the times of its checkpoints are unknown"
_UNSEEN: Mapping[str, str] = {
    **dict.fromkeys(("stalls", "stalls_in_checkpoints", "stall_time_share"), DEVICES),
    **dict.fromkeys(("wal_request_size", "wal_queue_depth", "wal_await", "wal_rate_device"), DEVICES),
    **dict.fromkeys(("data_burst_to_wal_ratio", "burst_write_await", "data_rate_device"), DEVICES),
    **dict.fromkeys((f"p{share}_{when}" for share in (50, 95, 99) for when in ("during_checkpoint", "between_checkpoints")), LOG),
    "p95_checkpoint_ratio": LOG,
}
"""Figure → reason why an external server has none."""
CHECKPOINTER = "pg_stat_checkpointer, or pg_stat_bgwriter before version 17"

Row = Mapping[str, Finding | str | int | float | None]


def is_profiled(by_variant: Mapping[str, Sequence[TrialProfile]]) -> bool:
    """Return True if there are trials, and all are of external servers."""
    trials = [trial for trials in by_variant.values() for trial in trials]
    return bool(trials) and all(trial.external for trial in trials)


def with_reasons(row: Row) -> dict[str, Finding | str | int | float | None]:
    """Return a row of the table ``io_profile`` in which each figure that cannot be seen has the reason as its note."""
    seen = dict(row)
    for name, reason in _UNSEEN.items():
        cell = row[name]
        assert isinstance(cell, Finding) and cell.value is None, f"{name} is unknown for an external server"
        seen[name] = cell.model_copy(update={"note": reason})
    return seen


def answer_of(findings: Mapping[str, Finding]) -> str:
    """Return the answer for a single external server."""
    tps, wal, rate = (_value(findings.get(name)) for name in ("throughput", "wal_per_tx", "checkpoint_rate"))
    start = "For this server" if tps is None else f"At {tps:,.0f} tps"
    generated = "WAL per transaction is unknown" if wal is None else f"each transaction generates {wal:.3g} kB of WAL"
    checkpoints = "the number of checkpoints is unknown" if rate is None else f"{rate:.2g} checkpoints per minute were due or requested"
    return f"{start} {generated}; {checkpoints}."


def wal_text(rows: Sequence[Row]) -> str:
    """Return WAL per transaction of each variant. '' if no variant has it."""
    texts = []
    for row in rows:
        cell = row.get("wal_per_tx")
        wal = _value(cell if isinstance(cell, Finding) else None)
        if wal is not None:
            texts.append(f"{wal:.3g} kB with {row['server']}")
    return f"WAL per transaction: {', '.join(texts)}" if texts else ""


def _value(finding: Finding | None) -> float | None:
    return None if finding is None else finding.value
