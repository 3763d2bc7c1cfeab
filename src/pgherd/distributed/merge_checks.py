"""Checks of a trial on several hosts: each host's checks combined, and those that only a cluster has. Pure.

A check keeps its name. The worst host decides it and is named: *fail* before *unknown* before *pass*. ``overlap`` and
``switch-skew`` are checked again over all hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.distributed.clock_alignment import Clocks, CommonPhase
from pgherd.distributed.place_trial import loaded
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Thresholds, Verdict
from pgherd.model.result import PhaseResult
from pgherd.model.trial import Trial
from pgherd.runner.checks import trial_checks

CLOCK_OFFSET = "clock-offset"
START_SKEW = "start-skew"
ALL_HOSTS = "all-hosts"

_OF_TARGETS = ("overlap", "errors", "checkpoints", "vacuums", "switch-skew")
"""Checks of the loaded targets. They do not apply to a phase, or a host, without load."""
_OF_ALL_HOSTS = ("overlap", "switch-skew")


@dataclass(frozen=True)
class ClusterObservations:
    """Observations that need all hosts. ``lost`` maps missing hosts to the reason.

    In an ``open_ended`` trial each host ends when it has finished. That is a result, so it is not checked.
    """

    windows: Sequence[CommonPhase]
    clocks: Clocks
    lost: Mapping[str, str] = field(default_factory=dict)
    open_ended: bool = False


def of_part(part: Trial, phases: list[PhaseResult], facts: HostFacts, limits: Thresholds, jump: float) -> list[Verdict]:
    """Return one host's checks of its part. In phases without load here, only the host itself is checked."""
    numbers = loaded(part)
    if len(numbers) == len(phases):
        return trial_checks.judge(part, phases, facts, limits, jump)
    bare = part.model_copy(update={"intents": ()})
    checks = [check for check in trial_checks.judge(bare, phases, facts, limits, jump) if check.check not in _OF_TARGETS]
    if numbers:
        busy = part.model_copy(update={"phases": tuple(part.phases[number] for number in numbers)})
        of_busy = trial_checks.judge(busy, [phases[number] for number in numbers], facts, limits, jump)
        names = {check.check for check in checks}
        of_targets = [check for check in of_busy if check.check in _OF_TARGETS or (check.kind == "intent" and check.check not in names)]
        checks = of_targets + checks
    return checks


def together(
    parts: Mapping[str, Sequence[Verdict]], phases: Sequence[PhaseResult], seen: ClusterObservations, limits: Thresholds
) -> list[Verdict]:
    """Return all checks of the trial from host → its checks."""
    checks = worst_of({host: [check for check in host_checks if check.check not in _OF_ALL_HOSTS] for host, host_checks in parts.items()})
    if not seen.open_ended:
        checks.append(_overlap(phases, seen, limits))
    if len(phases) > 1:
        checks.append(_switch_skew(phases, seen, limits))
    if len(parts) > 1:
        checks += [_clock_offset(list(parts), seen.clocks, limits), _start_skew(seen.windows, limits)]
    checks.append(all_hosts(list(parts), seen.lost))
    return checks


def worst_of(parts: Mapping[str, Sequence[Verdict]]) -> list[Verdict]:
    """Return for each check that of the worst host."""
    names = dict.fromkeys(check.check for host_checks in parts.values() for check in host_checks)
    return [_worst({host: check for host, host_checks in parts.items() for check in host_checks if check.check == name}) for name in names]


def _worst(by_host: Mapping[str, Verdict]) -> Verdict:
    """Return the worst check with its host's name. If all hosts passed, it is the first host's."""
    host = max(by_host, key=lambda name: by_host[name].gravity)
    worst = by_host[host]
    if len(by_host) == 1 and worst.result == "pass":
        return worst.model_copy(update={"observed": f"{host}: {worst.observed}"})
    if worst.result == "pass":
        others = f"{len(by_host) - 1} other host{'' if len(by_host) == 2 else 's'}"
        return worst.model_copy(update={"observed": f"{host}: {worst.observed}; {others} passed too"})
    alike = [name for name, check in by_host.items() if check.result == worst.result and name != host]
    also = f"; so do {', '.join(alike)}" if alike and worst.result == "fail" else ""
    texts = {"observed": f"{host}: {worst.observed}", "why": f"host {host}: {worst.why}{also}"}
    return worst.model_copy(update={**texts, "failed_in": _failed_in([check for check in by_host.values() if check.result == "fail"])})


def _failed_in(failed: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the phases that failed on any host, or none if a check failed as a whole."""
    return tuple(dict.fromkeys(name for check in failed for name in check.failed_in)) if all(check.failed_in for check in failed) else ()


def _verdict(check: str, ok: bool | None, observed: str, wanted: str, why: str) -> Verdict:
    result = "unknown" if ok is None else "pass" if ok else "fail"
    return Verdict.model_validate(
        {"check": check, "kind": "noise", "result": result, "observed": observed, "wanted": wanted, "why": "" if ok else why}
    )


def _overlap(phases: Sequence[PhaseResult], seen: ClusterObservations, limits: Thresholds) -> Verdict:
    worst = min(phases, key=lambda phase: phase.overlap)
    observed = f"{worst.overlap:.1%} of the period ({worst.phase}), {_over_all(seen)}"
    why = "some databases started late or ended early, so the others shared the hosts with fewer"
    short = tuple(phase.phase for phase in phases if phase.overlap < limits.overlap) if len(phases) > 1 else ()
    return _verdict("overlap", worst.overlap >= limits.overlap, observed, f"≥ {limits.overlap:.0%}", why).model_copy(
        update={"failed_in": short}
    )


def _switch_skew(phases: Sequence[PhaseResult], seen: ClusterObservations, limits: Thresholds) -> Verdict:
    """Check the skew over the targets of all hosts, whose instants are in one clock here."""
    check = trial_checks.switch_skew(phases, limits)
    worst = trial_checks.worst_switch(phases)
    if worst.skew is None:
        return check
    last = max(worst.targets, key=lambda target: target.first).target
    return check.model_copy(update={"observed": f"{check.observed}, {last} the last, {_over_all(seen)}"})


def _over_all(seen: ClusterObservations) -> str:
    hosts = sorted({host for reading in seen.clocks.readings for host in reading})
    uncertainty = max((known for host in hosts if (known := seen.clocks.uncertainty(host)) is not None), default=0.0)
    return f"over all hosts, with their clocks known to {_ms(uncertainty)}"


def _ms(seconds: float) -> str:
    """Return text such as ``1.23 ms`` or ``1234 ms``, never with an exponent."""
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def _clock_offset(hosts: Sequence[str], clocks: Clocks, limits: Thresholds) -> Verdict:
    wanted = f"each host's clock offset known to ± {limits.clock_offset * 1000:g} ms, before and after"
    uncertainties = {host: clocks.uncertainty(host) for host in hosts}
    missing = [host for host, uncertainty in uncertainties.items() if uncertainty is None]
    if missing:
        return _verdict(CLOCK_OFFSET, None, f"not measured on {', '.join(missing)}", wanted, "these hosts did not respond in time")
    errors = {host: (uncertainty or 0.0) + clocks.drift(host) for host, uncertainty in uncertainties.items()}
    worst = max(errors, key=lambda host: errors[host])
    offset = clocks.of(worst)[-1].seconds
    observed = f"{worst}: {1000 * offset:+.2f} ms ± {_ms(errors[worst])}, the least certain"
    why = "the network to this host is slow or uneven, or its clock was set, so windows of different hosts cannot be matched"
    return _verdict(CLOCK_OFFSET, errors[worst] <= limits.clock_offset, observed, wanted, why)


def _start_skew(windows: Sequence[CommonPhase], limits: Thresholds) -> Verdict:
    wanted = f"≤ {limits.start_skew * 1000:g} ms between the first and the last host to begin a phase"
    skews = {number: window.skew for number, window in enumerate(windows, 1) if window.skew is not None}
    if not skews:
        return _verdict(START_SKEW, True, "no phase loads more than one host", wanted, "")
    worst = max(skews, key=lambda number: skews[number])
    began = windows[worst - 1].began
    last = max(began, key=lambda host: began[host])
    observed = f"{_ms(skews[worst])} (phase {worst}; {last} was the last)"
    why = f"host {last} did not start its drivers at the agreed instant, or they took long to connect"
    return _verdict(START_SKEW, skews[worst] <= limits.start_skew, observed, wanted, why)


def all_hosts(hosts: Sequence[str], lost: Mapping[str, str]) -> Verdict:
    """Check that the trial ran on every host of its run."""
    total = len(hosts) + len(lost)
    observed = f"{len(hosts)} of {total}" + (f"; missing {', '.join(lost)}" if lost else "")
    why = "; ".join(f"host {host} was lost ({reason}), so the others took over its share" for host, reason in lost.items())
    return _verdict(ALL_HOSTS, not lost, observed, "every host of the run", why)
