"""Verdicts of a trial on several hosts: those of each host brought together, and those that only a cluster has. Pure.

A check keeps its name. The worst host decides it, and is named: *fail* before *unknown* before *pass*. ``overlap`` and
``switch-skew`` are judged anew, over all hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.model.facts import HostFacts
from pgherd.model.finding import Verdict
from pgherd.model.result import PhaseResult
from pgherd.model.thresholds import Thresholds
from pgherd.model.trial import Trial
from pgherd.runner.hosts.clocks import Clocks, Together
from pgherd.runner.hosts.placing import loaded
from pgherd.runner.judge import verdicts

CLOCK_OFFSET = "clock-offset"
START_SKEW = "start-skew"
ALL_HOSTS = "all-hosts"

_OF_TARGETS = ("overlap", "errors", "checkpoints", "vacuums", "switch-skew")
"""Checks that look at what was loaded: they say nothing of a phase, or a host, that had no load."""
_WHOLE = ("overlap", "switch-skew")


@dataclass(frozen=True)
class Seen:
    """What of a trial shows only when all hosts are looked at together; ``lost`` maps hosts that are missing to the reason. Of an
    ``open_ended`` trial each host ends when it is done: that is a result, and not judged."""

    windows: Sequence[Together]
    clocks: Clocks
    lost: Mapping[str, str] = field(default_factory=dict)
    open_ended: bool = False


def of_part(part: Trial, phases: list[PhaseResult], facts: HostFacts, limits: Thresholds, jump: float) -> list[Verdict]:
    """One host's verdicts on its own part: of phases in which it had no load only what concerns the host itself."""
    numbers = loaded(part)
    if len(numbers) == len(phases):
        return verdicts.judge(part, phases, facts, limits, jump)
    bare = part.model_copy(update={"intents": ()})
    found = [one for one in verdicts.judge(bare, phases, facts, limits, jump) if one.check not in _OF_TARGETS]
    if numbers:
        busy = part.model_copy(update={"phases": tuple(part.phases[number] for number in numbers)})
        of_busy = verdicts.judge(busy, [phases[number] for number in numbers], facts, limits, jump)
        known = {one.check for one in found}
        more = [one for one in of_busy if one.check in _OF_TARGETS or (one.kind == "intent" and one.check not in known)]
        found = more + found
    return found


def together(parts: Mapping[str, Sequence[Verdict]], phases: Sequence[PhaseResult], seen: Seen, limits: Thresholds) -> list[Verdict]:
    """All verdicts of the trial: host → its own, in."""
    found = worst_of({host: [one for one in own if one.check not in _WHOLE] for host, own in parts.items()})
    if not seen.open_ended:
        found.append(_overlap(phases, seen, limits))
    if len(phases) > 1:
        found.append(_switch_skew(phases, seen, limits))
    if len(parts) > 1:
        found += [_clock_offset(list(parts), seen.clocks, limits), _start_skew(seen.windows, limits)]
    found.append(all_hosts(list(parts), seen.lost))
    return found


def worst_of(parts: Mapping[str, Sequence[Verdict]]) -> list[Verdict]:
    """One verdict for each check: that of the worst host."""
    checks = dict.fromkeys(one.check for own in parts.values() for one in own)
    return [_worst({host: one for host, own in parts.items() for one in own if one.check == check}) for check in checks]


def _worst(by_host: Mapping[str, Verdict]) -> Verdict:
    """The worst one, with its host's name; a check that all hosts passed shows the first."""
    host = max(by_host, key=lambda name: by_host[name].gravity)
    worst = by_host[host]
    if len(by_host) == 1 and worst.result == "pass":
        return worst.model_copy(update={"observed": f"{host}: {worst.observed}"})
    if worst.result == "pass":
        rest = f"{len(by_host) - 1} other host{'' if len(by_host) == 2 else 's'}"
        return worst.model_copy(update={"observed": f"{host}: {worst.observed}; {rest} passed too"})
    others = [name for name, one in by_host.items() if one.result == worst.result and name != host]
    also = f"; so do {', '.join(others)}" if others and worst.result == "fail" else ""
    said = {"observed": f"{host}: {worst.observed}", "why": f"host {host}: {worst.why}{also}"}
    return worst.model_copy(update={**said, "failed_in": _failed_in([one for one in by_host.values() if one.result == "fail"])})


def _failed_in(failed: Sequence[Verdict]) -> tuple[str, ...]:
    """The phases that failed on any host; none are named where one failed as a whole."""
    return tuple(dict.fromkeys(name for one in failed for name in one.failed_in)) if all(one.failed_in for one in failed) else ()


def _verdict(check: str, ok: bool | None, observed: str, wanted: str, why: str) -> Verdict:
    result = "unknown" if ok is None else "pass" if ok else "fail"
    return Verdict.model_validate(
        {"check": check, "kind": "noise", "result": result, "observed": observed, "wanted": wanted, "why": "" if ok else why}
    )


def _overlap(phases: Sequence[PhaseResult], seen: Seen, limits: Thresholds) -> Verdict:
    least = min(phases, key=lambda phase: phase.overlap)
    observed = f"{least.overlap:.1%} of the period ({least.phase}), {_over_all(seen)}"
    why = "some databases started late or ended early, so that the others had the hosts to themselves"
    short = tuple(phase.phase for phase in phases if phase.overlap < limits.overlap) if len(phases) > 1 else ()
    return _verdict("overlap", least.overlap >= limits.overlap, observed, f"≥ {limits.overlap:.0%}", why).model_copy(
        update={"failed_in": short}
    )


def _switch_skew(phases: Sequence[PhaseResult], seen: Seen, limits: Thresholds) -> Verdict:
    """As on one host, over the targets of all hosts, which stand on one clock here."""
    judged = verdicts.switch_skew(phases, limits)
    worst = verdicts.worst_switch(phases)
    if worst.skew is None:
        return judged
    last = max(worst.targets, key=lambda target: target.first).target
    return judged.model_copy(update={"observed": f"{judged.observed}, {last} the last, {_over_all(seen)}"})


def _over_all(seen: Seen) -> str:
    hosts = sorted({host for reading in seen.clocks.readings for host in reading})
    unsure = max((one for host in hosts if (one := seen.clocks.uncertainty(host)) is not None), default=0.0)
    return f"over all hosts, with their clocks known to {_ms(unsure)}"


def _ms(seconds: float) -> str:
    """``1.23 ms``, ``1234 ms``: never with a power of ten."""
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def _clock_offset(hosts: Sequence[str], clocks: Clocks, limits: Thresholds) -> Verdict:
    wanted = f"each host's clock offset known to ± {limits.clock_offset * 1000:g} ms, before and after"
    known = {host: clocks.uncertainty(host) for host in hosts}
    missing = [host for host, one in known.items() if one is None]
    if missing:
        return _verdict(CLOCK_OFFSET, None, f"not measured on {', '.join(missing)}", wanted, "these hosts did not answer in time")
    unsure = {host: (one or 0.0) + clocks.drift(host) for host, one in known.items()}
    worst = max(unsure, key=lambda host: unsure[host])
    offset = clocks.of(worst)[-1].seconds
    observed = f"{worst}: {1000 * offset:+.2f} ms ± {_ms(unsure[worst])}, the least certain"
    why = "the way to this host is slow or uneven, or its clock was set meanwhile, so that windows of different hosts cannot be matched"
    return _verdict(CLOCK_OFFSET, unsure[worst] <= limits.clock_offset, observed, wanted, why)


def _start_skew(windows: Sequence[Together], limits: Thresholds) -> Verdict:
    wanted = f"≤ {limits.start_skew * 1000:g} ms between the first and the last host to begin a phase"
    skews = {number: one.skew for number, one in enumerate(windows, 1) if one.skew is not None}
    if not skews:
        return _verdict(START_SKEW, True, "no phase loads more than one host", wanted, "")
    worst = max(skews, key=lambda number: skews[number])
    began = windows[worst - 1].began
    last = max(began, key=lambda host: began[host])
    observed = f"{_ms(skews[worst])} (phase {worst}; {last} was the last)"
    why = f"host {last} did not get to start its drivers at the agreed instant, or they took long to connect"
    return _verdict(START_SKEW, skews[worst] <= limits.start_skew, observed, wanted, why)


def all_hosts(hosts: Sequence[str], lost: Mapping[str, str]) -> Verdict:
    """Whether the trial ran on every host of its run."""
    total = len(hosts) + len(lost)
    observed = f"{len(hosts)} of {total}" + (f"; missing {', '.join(lost)}" if lost else "")
    why = "; ".join(f"host {host} was lost ({reason}), so that its share fell to the others" for host, reason in lost.items())
    return _verdict(ALL_HOSTS, not lost, observed, "every host of the run", why)
