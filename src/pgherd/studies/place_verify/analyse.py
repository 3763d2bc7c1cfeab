"""Analysis of a verification: prediction and measurement of each host and slot, for CPU, memory and latency class. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate, mean_interval, share_interval, student
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.load import LatencyClass
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.place_verify.latency import host_limit, is_right, late_transactions
from pgherd.studies.place_verify.options import PlaceVerifyOptions
from pgherd.studies.place_verify.propose import (
    CALIBRATION,
    CAPACITY,
    REFERENCE,
    VERIFICATION,
    Line,
    by_stage,
    container_cpu,
    container_name,
    line_of,
    offered_rate,
    reference_cost,
)
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import grade_of, qualify_answer, trial_warnings

Row = dict[str, Finding | str | int | float | None]
_MB = 2**20
CONFIDENCE = 0.95
CLOSE = 0.1
"""Error of a slot, as a part of the prediction, up to which it counts as close."""


@dataclass(frozen=True)
class HostSlot:
    """Prediction and measurement of a host in a slot of one trial: CPU in cores of this host.

    ``slowness`` is the CPU of a transaction of the reference database, by that in the calibration. ``alone`` is the prediction
    without it. Memory is in bytes. None: the plan has none, or it was not observed. ``latency`` is the class by the curve of the
    calibration, and ``late`` the share of late transactions. None: no objective, or no transaction.
    """

    host: int
    slot: int
    predicted: float
    low: float
    high: float
    slowness: float
    alone: float
    measured: float
    overload_predicted: bool
    overload_measured: bool
    memory_predicted: float | None
    memory_measured: float | None
    latency: LatencyClass | None
    late: Estimate | None

    @property
    def error(self) -> float:
        """Measured CPU less the prediction, as a part of the prediction."""
        return self.measured / self.predicted - 1

    @property
    def covered(self) -> bool:
        """Whether the measurement is in the interval of the prediction."""
        return self.low <= self.measured <= self.high


def predict(options: PlaceVerifyOptions, line: Line, host: int, rate: float, slowness: float) -> tuple[float, float, float]:
    """Return the CPU of a host at a rate, at most its quota, with its 95 % prediction interval.

    The interval has the deviation of the calibration's phases from the line, the error of the line, and the random number of arrivals.
    """
    planned = options.planned[host]
    wanted, quota = _wanted(options, line, host, rate, slowness), options.quota(planned)
    value = min(wanted, quota)
    t, of_line = student(CONFIDENCE, line.n - 2), line.error(len(planned.databases), rate, wanted / slowness) * slowness
    half = t * math.hypot(of_line, line.cost * slowness * math.sqrt(rate / options.duration))
    # A full container uses its quota, whatever arrives.
    full = t * line.deviation * quota
    return value, min(wanted - half, quota - full), min(wanted + half, quota + full)


def _wanted(options: PlaceVerifyOptions, line: Line, host: int, rate: float, slowness: float) -> float:
    """Return the CPU in cores that a host would use at a rate without its quota."""
    return line.cpu(len(options.planned[host].databases), rate) * slowness


def predict_memory(options: PlaceVerifyOptions, phase: PhaseResult, host: int) -> float | None:
    """Return the memory of a host in bytes: its data, and for each server what that of the reference database has on top of its data.

    Servers start with all data in shared buffers. None: the plan has no memory, or that of the reference database was not observed.
    """
    reference = container_memory(phase, REFERENCE)
    if not options.scales or reference is None:
        return None
    scales = options.scales[host]
    return len(scales) * reference + options.scale_bytes * sum(scale - options.scale for scale in scales)


def container_memory(phase: PhaseResult, container: str) -> float | None:
    """Return the memory of a container in bytes. None: not observed."""
    return phase.metrics.get(f"container:{container}", {}).get("memory.usage")


def compare(options: PlaceVerifyOptions, results: Sequence[TrialResult]) -> tuple[Line | None, list[HostSlot]]:
    """Return the calibration and the host slots of all finished verification trials."""
    calibration = next((result for result in by_stage(results, CALIBRATION) if result.error is None), None)
    line = None if calibration is None else line_of(options, calibration)
    if calibration is None or line is None:
        return None, []
    limits = [host_limit(options, calibration, host) for host in range(len(options.planned))]
    found = []
    for result in by_stage(results, VERIFICATION):
        if result.error is not None:
            continue
        for slot, (phase, measured) in enumerate(zip(result.trial.phases, result.phases, strict=False)):
            cost = reference_cost(measured)
            for host, planned in enumerate(options.planned):
                name, limit = container_name(host), limits[host]
                cpu, quota = container_cpu(measured, name), options.quota(planned)
                if cpu is None or cost is None:
                    continue
                rate, slowness = offered_rate(phase, name), cost / line.reference
                value, low, high = predict(options, line, host, rate, slowness)
                alone, *_ = predict(options, line, host, rate, 1.0)
                if min(value, alone) <= 0:  # no load, of which an error would be a share
                    continue
                full = options.thresholds.host_full * quota
                memory = predict_memory(options, measured, host), container_memory(measured, name)
                latency = None if limit is None else limit.classify(_wanted(options, line, host, rate, slowness))
                late = None if options.objective is None else late_transactions(measured, name, options.objective)
                found.append(
                    HostSlot(host, slot, value, low, high, slowness, alone, cpu, value >= full, cpu >= full, *memory, latency, late)
                )
    return line, found


def analyse(options: PlaceVerifyOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the error of the predicted CPU. Missing and tainted trials never raise."""
    line, found = compare(options, results)
    findings = {
        "cpu_error": _error(found, lambda one: abs(one.error)),
        "cpu_error_without_reference": _error(found, lambda one: abs(one.measured / one.alone - 1)),
        **_shares(found),
        **_memory(options, found),
        **_latency(options, found),
        **_calibration(line),
    }
    used = [result for result in results if result.error is None]
    # All predictions are by the trials before the verification.
    basis_clean = not any(result.tainted for stage in (CAPACITY, CALIBRATION) for result in by_stage(results, stage))
    clean = [basis_clean and not result.tainted for result in by_stage(results, VERIFICATION) if result.error is None]
    slots = len(options.planned) * len(options.slots)
    whole = len(found) == slots * options.repeats
    left_out = slots * len(clean) - len(found)
    grade = grade_of(clean, {result.trial.key() for result in used}, results, whole=whole)
    answer = _answer(options, findings)
    return Analysis(
        answer=qualify_answer(answer, grade) if found else answer,
        details=_details(options, found, findings),
        grade=grade,
        findings=findings,
        tables={"place-verify": [_row(options, found, host) for host in range(len(options.planned))], "slots": _slot_rows(options, found)},
        warnings=[
            *_not_verified(options),
            *([f"{left_out} of {slots * len(clean)} slots of hosts are left out: no load, or CPU that was not seen"] if left_out else []),
            "The load is the demand that is planned for, so this does not test whether the demand is true",
            *trial_warnings(results, None),
        ],
    )


def _not_verified(options: PlaceVerifyOptions) -> list[str]:
    missing_parts = [] if options.scales else ["Memory is not verified: the demand has no memory_mb"]
    if options.objective is None:
        missing_parts.append("The latency class is not verified: no latency objective is given (--slo)")
    return [*missing_parts, "Disk, WAL and connections are not verified, nor is how memory changes over the day"]


def _by_slot(found: Sequence[HostSlot]) -> list[list[HostSlot]]:
    """Return the repeats of each host and slot. All have the error of the same prediction, so an interval counts them once."""
    slots: dict[tuple[int, int], list[HostSlot]] = {}
    for one in found:
        slots.setdefault((one.host, one.slot), []).append(one)
    return list(slots.values())


def _error(found: Sequence[HostSlot], error: Callable[[HostSlot], float]) -> Finding:
    if not found:
        return missing("fraction", "no slot was measured")
    estimate = mean_interval([statistics.fmean(map(error, repeats)) for repeats in _by_slot(found)])
    method = f"mean of |measured ÷ predicted − 1| over hosts and slots, each by the mean of its repeats; {estimate.method}"
    return as_finding(estimate, "fraction", method=method)


def _shares(found: Sequence[HostSlot]) -> dict[str, Finding]:
    overloaded = {(slot[0].host, slot[0].slot) for slot in _by_slot(found) if 2 * sum(one.overload_measured for one in slot) > len(slot)}
    over = [one for one in found if (one.host, one.slot) in overloaded]
    under = [one for one in found if (one.host, one.slot) not in overloaded]
    return {
        "within_10_percent": _share_of_slots(found, lambda one: abs(one.error) <= CLOSE, "no slot was measured"),
        "in_interval": _share_of_slots(found, lambda one: one.covered, "no slot was measured"),
        "missed_overloads": _share_of_slots(over, lambda one: not one.overload_predicted, "no host was overloaded in any slot"),
        "false_alarms": _share_of_slots(under, lambda one: one.overload_predicted, "every host was overloaded in every slot"),
    }


def _share_of_slots(found: Sequence[HostSlot], hit: Callable[[HostSlot], bool], none: str) -> Finding:
    """Return the share of the slots for which more than half of the repeats are a hit."""
    return _share([2 * sum(map(hit, repeats)) > len(repeats) for repeats in _by_slot(found)], none)


def _share(hits: Sequence[bool], none: str) -> Finding:
    if not hits:
        return missing("fraction", none)
    estimate = share_interval(sum(hits), len(hits))
    return as_finding(estimate, "fraction", method=f"each slot by more than half of its repeats; {estimate.method}")


def _memory_errors(found: Sequence[HostSlot]) -> dict[int, float]:
    """Return the mean relative error of the memory of each host that has a prediction."""
    errors: dict[int, list[float]] = {}
    for one in found:
        if one.memory_predicted and one.memory_measured is not None:
            errors.setdefault(one.host, []).append(abs(one.memory_measured / one.memory_predicted - 1))
    return {host: statistics.fmean(values) for host, values in errors.items()}


def _memory(options: PlaceVerifyOptions, found: Sequence[HostSlot]) -> dict[str, Finding]:
    if not options.scales:
        return {}
    errors = _memory_errors(found)
    if not errors:
        return {"memory_error": missing("fraction", "no memory was observed")}
    estimate = mean_interval(list(errors.values()))
    method = f"mean of |measured ÷ predicted − 1| of each host, over its slots; {estimate.method}"
    return {"memory_error": as_finding(estimate, "fraction", method=method)}


def _latency(options: PlaceVerifyOptions, found: Sequence[HostSlot]) -> dict[str, Finding]:
    """Return how often classes of slots are right: those by the calibration's curve, and those of the plan if it has them."""
    findings: dict[str, Finding] = {}
    if options.objective is None:
        return findings
    judged = [one for one in found if one.late is not None]
    by_source: dict[str, Callable[[HostSlot], LatencyClass | None]] = {"latency_class_right": lambda one: one.latency}
    if any(host.latency for host in options.planned):
        by_source["planned_class_right"] = lambda one: planned_class(options, one.host, one.slot)
    for name, class_of in by_source.items():
        verdicts = []
        for repeats in _by_slot(judged):
            mine = [is_right(klass, one.late, options.objective) for one in repeats if (klass := class_of(one)) is not None]
            if mine:
                verdicts.append(next((right for right in (True, False) if 2 * mine.count(right) > len(mine)), None))
        decided = [right for right in verdicts if right is not None]
        findings[name] = _share(decided, "no class was decided, or too few transactions show the percentile")
        findings[f"{name.removesuffix('right')}open"] = _share([right is None for right in verdicts], "no slot has a class")
    return findings


def planned_class(options: PlaceVerifyOptions, host: int, slot: int) -> LatencyClass | None:
    """Return the class of a slot in the plan. None: it has none."""
    return options.planned[host].latency[slot] if options.planned[host].latency else None


def _calibration(line: Line | None) -> dict[str, Finding]:
    if line is None:
        return {"cpu_per_transaction": missing("ms", "the calibration gives none")}
    method = f"least squares of relative errors through {line.n} phases of containers"
    note = f"no interval: the phases deviate from the line by {line.deviation:.1%} of their CPU"
    return {
        "cpu_per_transaction": Finding(value=1000 * line.cost, unit="ms", n=line.n, method=method, note=note),
        "cpu_of_idle_server": Finding(value=line.idle, unit="cores", n=line.n, method=method, note=note),
    }


def _answer(options: PlaceVerifyOptions, findings: dict[str, Finding]) -> str:
    error, close = findings["cpu_error"], findings["within_10_percent"]
    if error.value is None or close.value is None:
        return "No result: no slot was measured."
    interval = "" if error.low is None or error.high is None else f" ({100 * error.low:.1f} … {100 * error.high:.1f})"
    hosts = "1 planned host" if len(options.planned) == 1 else f"{len(options.planned)} planned hosts"
    text = (
        f"The predicted CPU of {hosts} is off by {100 * error.value:.1f} %{interval} on average, and within 10 % in "
        f"{100 * close.value:.0f} % of {close.n} slots"
    )
    memory, right = findings.get("memory_error"), findings.get("latency_class_right")
    text += "" if memory is None or memory.value is None else f"; their memory is off by {100 * memory.value:.1f} %"
    if right is not None and right.value is not None:
        still_open = _hits(findings["latency_class_open"])
        text += f"; the latency class is right in {100 * right.value:.0f} % of {right.n} slots, and open in {still_open}"
    return text + "."


def _hits(share: Finding) -> int:
    """Return the number of slots of which a finding is the share."""
    return round((share.value or 0.0) * share.n)


def _details(options: PlaceVerifyOptions, found: Sequence[HostSlot], findings: dict[str, Finding]) -> list[str]:
    missed, alone = findings["missed_overloads"], findings["cpu_error_without_reference"]
    return [
        f"Each planned core is {options.factor:.3g} cores of this host, and loads are scaled down alike.",
        f"Slots with overload (at least {100 * options.thresholds.host_full:g} % of the CPU): {missed.n} measured, {_hits(missed)} "
        f"of them not predicted. False alarms: {_hits(findings['false_alarms'])}.",
        *(
            [
                f"The reference database took {min(one.slowness for one in found):.2f} to {max(one.slowness for one in found):.2f} of the "
                f"calibration's CPU per transaction, which predictions follow. Without it the error is {100 * alone.value:.1f} %."
            ]
            if alone.value is not None
            else []
        ),
    ]


def _row(options: PlaceVerifyOptions, found: Sequence[HostSlot], number: int) -> Row:
    planned = options.planned[number]
    mine = [one for one in found if one.host == number]
    shares = _shares(mine)
    return {
        "planned_host": planned.name,
        "databases": len(planned.databases),
        "planned_cores": planned.cores,
        "cores_here": options.quota(planned),
        "verified_slots": len(_by_slot(mine)),
        "cpu_error": _error(mine, lambda one: abs(one.error)),
        "largest_cpu_error": max((abs(one.error) for one in mine), default=None),
        **shares,
        **({"memory_error": _memory_errors(mine).get(number)} if options.scales else {}),
        **{name: finding for name, finding in _latency(options, mine).items() if name.endswith("right")},
    }


def _slot_rows(options: PlaceVerifyOptions, found: Sequence[HostSlot]) -> list[Row]:
    rows: list[Row] = []
    for host, planned in enumerate(options.planned):
        for slot, name in enumerate(options.slots):
            mine = [one for one in found if (one.host, one.slot) == (host, slot)]
            if not mine:
                continue
            predicted, low, high = (statistics.fmean(each) for each in zip(*((o.predicted, o.low, o.high) for o in mine), strict=True))
            rows.append(
                {
                    "planned_host": planned.name,
                    "slot": name,
                    "predicted_cpu": Finding(
                        value=predicted,
                        unit="cores",
                        low=low,
                        high=high,
                        confidence=CONFIDENCE,
                        n=1,
                        method="95 % prediction interval of one phase: deviation of the calibration, and random arrivals",
                    ),
                    "measured_cpu": as_finding(mean_interval([one.measured for one in mine]), "cores"),
                    "cpu_error": statistics.fmean(one.error for one in mine),
                    "predicted_without_reference": statistics.fmean(one.alone for one in mine),
                    "slowness": statistics.fmean(one.slowness for one in mine),
                    "overload_predicted": "yes" if any(one.overload_predicted for one in mine) else "no",
                    "overload_measured": "yes" if any(one.overload_measured for one in mine) else "no",
                    **_memory_cells(mine),
                    **_latency_cells(options, mine),
                }
            )
    return rows


def _memory_cells(mine: Sequence[HostSlot]) -> Row:
    """Return predicted and measured memory of a host in a slot, in MB, as the mean over the trials."""
    pairs = [(one.memory_predicted, one.memory_measured) for one in mine]
    known = [(predicted, measured) for predicted, measured in pairs if predicted is not None and measured is not None]
    if not known:
        return {}
    predicted, measured = (statistics.fmean(values) / _MB for values in zip(*known, strict=True))
    return {"predicted_memory": predicted, "measured_memory": measured}


def _latency_cells(options: PlaceVerifyOptions, mine: Sequence[HostSlot]) -> Row:
    """Return the classes of a slot, and its share of late transactions. With several trials: the first class, and the mean share."""
    if options.objective is None:
        return {}
    late = [one.late for one in mine if one.late is not None]
    share = late[0] if len(late) == 1 else mean_interval([one.value for one in late]) if late else None
    return {
        "latency_class": mine[0].latency or "",
        "planned_class": planned_class(options, mine[0].host, mine[0].slot) or "",
        "host_late_share": missing("fraction", "no transaction") if share is None else as_finding(share, "fraction"),
    }
