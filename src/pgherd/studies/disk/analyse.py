"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.analysis.intervals import LEAST
from pgherd.analysis.stability import RANGE, ROUNDS, SLOPE
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.studies.disk.access import MIX, TESTS
from pgherd.studies.disk.hosts import behind, host_findings, host_rows, with_imbalance
from pgherd.studies.disk.options import ALL, DiskOptions, DiskVolume
from pgherd.studies.disk.points import Group, cached, group, limited_by, reached, shared
from pgherd.studies.disk.tables import alone_of, depth_rows, disk_rows, figure_finding, hero_rows, mixed, volume_rows
from pgherd.study.device_io import MEMORY_FILESYSTEMS
from pgherd.study.grade import fallback_warnings, grade_of, qualify_answer, shortened_list, trial_warnings, worst


def analyse(options: DiskOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a disk run, one sentence as its answer, and its grade."""
    warnings = trial_warnings(results)
    groups = group(options, results)
    if not groups:
        said = f"{len(results)} trials were run and none of them finished" if results else "no trial was run"
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=warnings)
    findings: dict[str, Finding] = {}
    for of in groups:
        suffix = f".{of.place}" if len(options.names()) > 1 else ""
        findings[of.name + suffix] = figure_finding(options, of, alone_of(groups, of))
    findings |= _rates(options, groups)
    findings |= host_findings(options, groups) if options.hosts else {}
    grade = _grade(options, groups, results)
    text = _answer(options, groups, findings)
    return Analysis(
        answer=qualify_answer(text, grade),
        grade=grade,
        findings=findings,
        tables={
            "disk": with_imbalance(options, groups, disk_rows(options, groups)) if options.hosts else disk_rows(options, groups),
            "hero": hero_rows(options, groups),
            "depth": depth_rows(options, groups),
            **({"hosts": host_rows(options, groups)} if options.hosts else {}),
            "volumes": volume_rows(options),
        },
        warnings=[*warnings, *_warnings(options, groups)],
        look_at=_look_at(options, groups),
        figures={"series": _series(groups)},
    )


def _rates(options: DiskOptions, groups: Sequence[Group]) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    for of in groups:
        part = reached(options, of)
        if part is not None:
            suffix = f".{of.place}" if len(options.names()) > 1 else ""
            found |= {f"mix_{side}s{suffix}": mixed(of, side) for side in ("read", "write")}
            found[f"rate_reached{suffix}"] = Finding(
                value=part,
                unit="ratio",
                n=len(of.used),
                method="median over the trials of the direction and volume that reached least",
                note="no interval: it says whether the rates were met",
            )
    return found


def _grade(options: DiskOptions, groups: Sequence[Group], results: Sequence[TrialResult]) -> Grade:
    """A: every test has clean trials enough on every volume, all of them steady, from devices and not from a cache, on nothing that
    distorts. C: on some volume, or on all at once, half of the tests or more have tainted trials only, or none has finished. B: everything
    between."""
    complete = {(of.place, of.test.name) for of in groups if of.clean} == {(p, t) for p in options.places() for t in options.tests}
    enough = all(len(of.used) >= min(LEAST, options.repeats) for of in groups)
    steady = all(of.judged and not of.unsteady for of in groups)
    true = all(cached(options, of) is False for of in groups) and not any(one.distorts for one in options.volumes)
    used = {one.key for of in groups for one in of.used}
    whole = complete and enough and steady and true
    return worst([grade_of([of.clean for of in groups if of.place == place], used, results, whole=whole) for place in options.places()])


def _answer(options: DiskOptions, groups: Sequence[Group], findings: Mapping[str, Finding]) -> str:
    """The figures of the last place: all volumes at once, or the only one."""
    place = options.places()[-1]
    at = {of.test.name: of for of in groups if of.place == place}
    parts = []
    for name in ("random-read", "random-write", "sequential-read", "sequential-write", "single-read", "single-write", MIX):
        if name not in at:
            continue
        _, unit, values = at[name].figure
        if values:
            note = " (from a cache)" if cached(options, at[name]) else ""
            if name == MIX:  # as two rates
                reads, writes = (mixed(at[name], side).value or 0.0 for side in ("read", "write"))
                parts.append(f"a mix of {_short(reads)} reads and {_short(writes)} writes a second{note}")
                continue
            parts.append(f"{TESTS[name].label} {_short(sum(values) / len(values))} {unit}{note}")
    where = f"All {len(options.names())} volumes at once" if place == ALL else f"Volume {place}"
    where += f", {len(options.hosts)} hosts together" if options.hosts else ""
    slow = behind(findings) if options.hosts else None
    text = f"{where}: {', '.join(parts)}" if parts else f"{where}: nothing finished"
    return f"{text}; {slow}." if slow else f"{text}."


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _warnings(options: DiskOptions, groups: Sequence[Group]) -> list[str]:
    found = [*_tainted(options, groups), *_of_volumes(options)]
    hit = [of for of in groups if cached(options, of) and not any(v.filesystem in MEMORY_FILESYSTEMS for v in options.at(of.place))]
    if hit:
        said = ", ".join(f"{of.test.label} on {of.place} ({of.device_share or 0:.0%})" for of in hit)
        found.append(f"Came from a cache, since the devices moved less than fio asked for: {said}")
    small = [one for one in options.volumes if one.direct and one.size < options.memory and one.filesystem not in MEMORY_FILESYSTEMS]
    if small:
        names = ", ".join(dict.fromkeys(one.name for one in small))
        found.append(
            f"Caches below this host (a controller's, a hypervisor's) cannot be seen from here; one of {format_bytes(small[0].size)} would "
            f"hold the whole file of {names}: raise --size where that may be"
        )
    unsteady = [f"{of.test.label} on {of.place} ({of.unsteady} of {of.judged})" for of in groups if of.unsteady]
    if unsteady:
        found.append(
            f"Not steady by the rule (over {ROUNDS} parts a range of at most {RANGE:.0%} and a slope of at most {SLOPE:.0%} of the mean): "
            + ", ".join(unsteady)
            + "; a longer --seconds or --ramp would tell more"
        )
    if any(not of.judged for of in groups):
        found.append(f"Trials of {options.seconds:g} s are too short to say whether they were steady; give --seconds 6s or more")
    for of in groups:
        part = reached(options, of)
        if part is not None and part < options.thresholds.rate_met:
            found.append(
                f"The rates were not met on {of.place}: {part:.0%} of them; fio's latency hides how long I/Os waited for their turn"
            )
        together = shared(of, alone_of(groups, of)) if of.place == ALL else None
        if together is not None and limited_by(options, of, alone_of(groups, of)) == "sharing":
            found.append(
                f"{of.test.label}: all volumes at once make {together:.0%} of what they make one after the other: they share something"
            )
    there = {(of.place, of.test.name) for of in groups}
    bare = [place for place in options.places() if not any(of.place == place for of in groups)]
    if bare:
        found.append(f"No finished trial on {', '.join(bare)}: the whole answer is an indication (grade C)")
    absent = [f"{t} on {p}" for p in options.places() if p not in bare for t in options.tests if (p, t) not in there]
    return [*found, *([f"No finished trial of {', '.join(absent)}"] if absent else [])]


def _tainted(options: DiskOptions, groups: Sequence[Group]) -> list[str]:
    """Of each volume, and of all at once, what rests on tainted trials alone."""
    said = []
    for place in options.places():
        at = [of for of in groups if of.place == place]
        only = [of.test.label for of in at if not of.clean]
        said += fallback_warnings([of.clean for of in at], f"{shortened_list(only)} on {place}")
    return said


def _of_volumes(options: DiskOptions) -> list[str]:
    """What must be said of the volumes themselves: of those of one name that are alike on several hosts once."""
    found = []
    for name in options.names():
        said: dict[str, list[str]] = {}
        for one in options.at(name):
            for sentence in _of_volume(options, one):
                said.setdefault(sentence, []).append(one.volume.host or "")
        for sentence, hosts in said.items():
            where = f" on {', '.join(hosts)}" if options.hosts else ""
            found.append(f"{name}{where}{sentence}")
    return found


def _of_volume(options: DiskOptions, one: DiskVolume) -> list[str]:
    """Sentences without their beginning, which is the volume's name."""
    found = []
    if one.filesystem in MEMORY_FILESYSTEMS:
        found.append(f" lies in memory ({one.filesystem}): its figures say nothing of a disk")
    elif not one.direct:
        smaller = (
            f"; its file of {format_bytes(one.size)} fits into the host's memory of {format_bytes(options.memory)}"
            if one.size < options.memory
            else ""
        )
        found.append(f" ({one.filesystem}) is reached through the page cache, which takes part in every figure{smaller}")
    if one.distorts:
        found.append(" is a loop device on a file: the file system below it takes part in every figure, so they are too low")
    if not one.devices and one.filesystem not in MEMORY_FILESYSTEMS:
        found.append(": no device of it is seen, so whether a cache answered is not known")
    return found


def _look_at(options: DiskOptions, groups: Sequence[Group]) -> list[str]:
    found = []
    deep = [of for of in groups if of.place != ALL and limited_by(options, of) == "queue depth"]
    if deep:
        said = ", ".join(f"{of.test.label} on {of.place} (×{of.deeper_ratio:.2f})" for of in deep)
        found.append(f"queue depth: twice as many I/Os in flight make more of {said}; --depth or --sequential-depth raises it")
    if any(limited_by(options, of, alone_of(groups, of)) == "fio's CPU" for of in groups):
        found.append("fio's CPU: one job could make no more I/Os; give it more with --jobs")
    return found


def _series(groups: Sequence[Group]) -> list[dict[str, float | str]]:
    """Figures of every used trial, for a plot of the spread."""
    rows: list[dict[str, float | str]] = []
    for of in groups:
        name, unit, values = of.figure
        rows += [{"test": of.test.label, "place": of.place, "value": value, "unit": unit, "figure": name} for value in values]
    return rows
