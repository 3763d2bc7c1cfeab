"""Analysis of a verification: predicted and measured CPU of each host and slot. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import mean_interval, share_interval, student
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.result import TrialResult
from pgherd.studies.place_verify.options import PlaceVerifyOptions
from pgherd.studies.place_verify.propose import (
    CALIBRATION,
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
from pgherd.study.grade import check_warnings, failure_warnings, grade_of, qualify_answer

Row = dict[str, Finding | str | int | float | None]
CONFIDENCE = 0.95
CLOSE = 0.1
"""Error of a slot, as a part of the prediction, up to which it counts as close."""


@dataclass(frozen=True)
class HostSlot:
    """Prediction and measurement of a host in a slot of one trial: CPU in cores of this host.

    ``slowness`` is the CPU of a transaction of the reference database, by that in the calibration. ``alone`` is the prediction
    without it.
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
    wanted, quota = line.cpu(len(planned.databases), rate) * slowness, options.quota(planned)
    value = min(wanted, quota)
    t, of_line = student(CONFIDENCE, line.n - 2), line.error(len(planned.databases), rate, wanted / slowness) * slowness
    half = t * math.hypot(of_line, line.cost * slowness * math.sqrt(rate / options.duration))
    # A full container uses its quota, whatever arrives.
    full = t * line.deviation * quota
    return value, min(wanted - half, quota - full), min(wanted + half, quota + full)


def compare(options: PlaceVerifyOptions, results: Sequence[TrialResult]) -> tuple[Line | None, list[HostSlot]]:
    """Return the calibration and the host slots of all finished verification trials."""
    calibration = next((result for result in by_stage(results, CALIBRATION) if result.error is None), None)
    line = None if calibration is None else line_of(options, calibration)
    if line is None:
        return None, []
    found = []
    for result in by_stage(results, VERIFICATION):
        if result.error is not None:
            continue
        for slot, (phase, measured) in enumerate(zip(result.trial.phases, result.phases, strict=False)):
            cost = reference_cost(measured)
            for host, planned in enumerate(options.planned):
                cpu, quota = container_cpu(measured, container_name(host)), options.quota(planned)
                if cpu is None or cost is None:
                    continue
                rate, slowness = offered_rate(phase, container_name(host)), cost / line.reference
                value, low, high = predict(options, line, host, rate, slowness)
                alone, *_ = predict(options, line, host, rate, 1.0)
                full = options.thresholds.host_full * quota
                found.append(HostSlot(host, slot, value, low, high, slowness, alone, cpu, value >= full, cpu >= full))
    return line, found


def analyse(options: PlaceVerifyOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the error of the predicted CPU. Missing and tainted trials never raise."""
    line, found = compare(options, results)
    findings = {
        "cpu_error": _error([abs(one.error) for one in found]),
        "cpu_error_without_reference": _error([abs(one.measured / one.alone - 1) for one in found]),
        **_shares(found),
        **_calibration(line),
    }
    used = [result for result in results if result.error is None]
    verified = [result for result in by_stage(results, VERIFICATION) if result.error is None]
    whole = len(found) == len(options.planned) * len(options.slots) * options.repeats
    grade = grade_of([not result.tainted for result in verified], {result.trial.key() for result in used}, results, whole=whole)
    answer = _answer(options, findings)
    return Analysis(
        answer=qualify_answer(answer, grade) if found else answer,
        details=_details(options, found, findings["cpu_error_without_reference"]),
        grade=grade,
        findings=findings,
        tables={"place-verify": [_row(options, found, host) for host in range(len(options.planned))], "slots": _slot_rows(options, found)},
        warnings=[
            "Only CPU is verified: memory and the latency class of the plan are not",
            "The load is the demand that is planned for, so this does not test whether the demand is true",
            *failure_warnings(results),
            *check_warnings(results),
        ],
    )


def _error(errors: Sequence[float]) -> Finding:
    if not errors:
        return missing("fraction", "no slot was measured")
    estimate = mean_interval(errors)
    return as_finding(estimate, "fraction", method=f"mean of |measured ÷ predicted − 1| over hosts and slots; {estimate.method}")


def _shares(found: Sequence[HostSlot]) -> dict[str, Finding]:
    over = [one for one in found if one.overload_measured]
    under = [one for one in found if not one.overload_measured]
    return {
        "within_10_percent": _share([abs(one.error) <= CLOSE for one in found], "no slot was measured"),
        "in_interval": _share([one.covered for one in found], "no slot was measured"),
        "missed_overloads": _share([not one.overload_predicted for one in over], "no host was overloaded in any slot"),
        "false_alarms": _share([one.overload_predicted for one in under], "every host was overloaded in every slot"),
    }


def _share(hits: Sequence[bool], none: str) -> Finding:
    return as_finding(share_interval(sum(hits), len(hits)), "fraction") if hits else missing("fraction", none)


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
    return (
        f"The predicted CPU of {hosts} is off by {100 * error.value:.1f} %{interval} on average, and within 10 % in "
        f"{100 * close.value:.0f} % of {close.n} slots."
    )


def _details(options: PlaceVerifyOptions, found: Sequence[HostSlot], alone: Finding) -> list[str]:
    over = [one for one in found if one.overload_measured]
    missed = sum(not one.overload_predicted for one in over)
    alarms = sum(one.overload_predicted and not one.overload_measured for one in found)
    return [
        f"Each planned core is {options.factor:.3g} cores of this host, and loads are scaled down alike.",
        f"Slots with overload (at least {100 * options.thresholds.host_full:g} % of the CPU): {len(over)} measured, {missed} of them not "
        f"predicted. False alarms: {alarms}.",
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
        "verified_slots": len(mine),
        "cpu_error": _error([abs(one.error) for one in mine]),
        "largest_cpu_error": max((abs(one.error) for one in mine), default=None),
        **shares,
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
                }
            )
    return rows
