"""Knees, headroom, double-buffering dip, indirect estimates and published values."""

from __future__ import annotations

import pytest
from pytest import approx

from pgherd.model.analysis import Finding
from pgherd.studies.working_set.curves import SweepTrials
from pgherd.studies.working_set.findings import (
    PUBLISHED_CONFIGURED,
    PUBLISHED_HEADROOM,
    PUBLISHED_RATE,
    PUBLISHED_SIZES,
    dip_finding,
    from_memory_in_use,
    from_misses,
    from_psi,
    headroom,
    headroom_findings,
    published_dip,
    published_headroom,
    published_rate,
    published_working_set,
    refaults,
)
from pgherd.studies.working_set.options import MB, SweepCurve
from pgherd.studies.working_set.propose import trial_at


def known(value, low=None, high=None):
    return Finding(value=value, unit="MB", low=low, high=high, confidence=0.95 if low else None, n=9)


def test_e7(options):
    study_options = options(configured_memory=4096)
    result = headroom_findings(study_options, {30: known(1376.0), 2: known(1152.0)})
    assert result["configured"].value == 8192
    assert result["headroom"].value == 5664
    assert result["max_safe_overcommit"].value == approx(0.69, abs=0.005)
    assert result["headroom"].published.startswith("5664 MB") and result["max_safe_overcommit"].published.startswith("69 %")


def test_intervals_come_from_the_ends(options):
    result = headroom_findings(options(configured_memory=400), {30: known(250.0, 240.0, 270.0), 2: known(200.0, 190.0, 205.0)})
    assert (result["headroom"].low, result["headroom"].value, result["headroom"].high) == (325, 350, 370)
    assert result["max_safe_overcommit"].low == approx(325 / 800) and result["max_safe_overcommit"].high == approx(370 / 800)
    assert result["headroom"].n == 18


def test_no_interval_where_one_has_none(options):
    result = headroom_findings(options(), {30: known(250.0, 240.0, 270.0), 2: known(200.0)})
    assert result["headroom"].low is None and "no interval" in result["headroom"].note


def test_no_headroom_without_all_working_sets(options):
    result = headroom_findings(options(), {30: known(None), 2: known(200.0)})
    assert result["headroom"].value is None and result["headroom"].note == "no working set with 30 clients"


@pytest.mark.parametrize(
    ("configured", "sets", "expected"), [(8192, [1376, 1152], (5664, 0.69)), (100, [100], (0, 0)), (100, [150], (-50, 0))]
)
def test_headroom(configured, sets, expected):
    room, rate = headroom(configured, sets)
    assert room == expected[0] and rate == approx(expected[1], abs=0.005)


DIP_SIZES = (100, 122, 128, 134, 170, 200, 230, 260, 300, 350)  # 64 MB of buffers are 48–52 % of three of them


@pytest.fixture
def looked(server, options):
    def found(sizes=DIP_SIZES, repeats=3, **extra):
        study_options = options()
        curve = SweepCurve("memory", 30)
        trials = [trial_at(study_options, curve, size, 0, repeat, "planned") for size in sizes for repeat in range(repeats)]
        return dip_finding(study_options, [SweepTrials(curve, server(study_options, **extra).all(trials))])

    return found


def test_a_dip(looked):
    finding = looked(dip=0.2)
    assert finding.high < 0.97 and finding.note.startswith("a dip")
    assert finding.experiment == "E7" and "45–55 %" in finding.published


def test_none(looked):
    finding = looked(noise=0.003)
    assert finding.low > 0.97 and finding.note.startswith("no dip of 3 %")


def test_noise_supports_neither(looked):
    assert looked(noise=0.12, repeats=2).note.startswith("inconclusive: the data support neither")


def test_too_few(looked):
    finding = looked(sizes=(100, 128, 170, 200, 260, 300, 350), repeats=1)
    assert finding.value is not None and finding.low is None
    assert "too few trials" in finding.note


def test_no_size_there(looked):
    finding = looked(sizes=(150, 170, 200, 260, 300, 350))
    assert finding.value is None and "no trial with shared buffers at 45–55 %" in finding.note


MEMORY = SweepCurve("memory", 30)
SIZES = (100, 150, 200, 240, 260, 300)


@pytest.fixture
def measured(server, options):
    def build(curve=MEMORY, sizes=SIZES, extra=0, **more):
        study_options = options()
        return SweepTrials(
            curve, server(study_options, **more).all([trial_at(study_options, curve, size, extra, 0, "planned") for size in sizes])
        )

    return build


def changed(outcome: SweepTrials, entity: str, name: str, take) -> SweepTrials:
    """The same with another metric of each size; None takes it away."""
    results = []
    for result in outcome.trials:
        (phase,) = result.phases
        metrics = {key: dict(values) for key, values in phase.metrics.items()}
        value = take(outcome.size(result))
        metrics[entity].pop(name, None)
        if value is not None:
            metrics[entity][name] = value
        results.append(result.model_copy(update={"phases": [phase.model_copy(update={"metrics": metrics})]}))
    return SweepTrials(outcome.curve, results)


def test_misses_end_between_two_sizes(measured):
    finding = from_misses(measured())
    assert (finding.low, finding.value, finding.high) == (240, 260, 260)
    assert finding.confidence is None and "at most 5 %" in finding.method


def test_a_guest_is_measured_by_its_kernel(measured):
    """The host measures the hypervisor, not the guest."""

    def inside_a_guest(result):
        (host,) = result.trial.deployment.hosts
        guest = host.model_copy(
            update={"containers": tuple(container.model_copy(update={"runtime": "vm"}) for container in host.containers)}
        )
        deployment = result.trial.deployment.model_copy(update={"hosts": (guest,)})
        (phase,) = result.phases
        own = phase.metrics["container:db01"]
        observed = {"vm.refault_file": own["memory.refaults_file"], "memory.total": 300 * MB, "memory.available": 100 * MB}
        metrics = {**phase.metrics, "guest:db01": observed, "container:db01": {"memory.usage": 1e9}}
        trial = result.trial.model_copy(update={"deployment": deployment})
        return result.model_copy(update={"trial": trial, "phases": [phase.model_copy(update={"metrics": metrics})]})

    before = measured()
    outcome = SweepTrials(before.curve, [inside_a_guest(result) for result in before.trials])
    assert from_misses(outcome).value == from_misses(before).value
    use = from_memory_in_use(outcome)
    assert use.value == 200 and "less available memory of the guest" in use.method
    assert from_psi(outcome).value is None


def test_swapping_in_is_a_miss_too(measured):
    result = changed(measured(), "container:db01", "memory.refaults_anon", lambda size: 5000.0 if size < 280 else 0.0)
    assert from_misses(result).value == 300
    assert refaults(result.trials[0]) > refaults(measured().trials[0])


def test_misses_of_shared_buffers(measured):
    finding = from_misses(measured(SweepCurve("shared-buffers", 2), (16, 32, 64, 96, 128), 100))
    assert (finding.low, finding.value) == (64, 96)


def test_misses_that_were_not_seen_or_never_end(measured):
    unseen = from_misses(changed(measured(), "container:db01", "memory.refaults_file", lambda size: None))
    assert unseen.value is None and "older kernels" in unseen.note
    endless = from_misses(changed(measured(), "container:db01", "memory.refaults_file", lambda size: 10_000.0))
    assert endless.value is None and "even at the largest size" in endless.note
    none = from_misses(changed(measured(), "container:db01", "memory.refaults_file", lambda size: 0.0))
    assert none.value is None and "even at the smallest size" in none.note


def test_one_dip_is_not_enough_memory(measured):
    """From that size on: a size in between that happens to miss little does not count."""
    result = changed(measured(), "container:db01", "memory.refaults_file", lambda size: 0.0 if size in (150, 300) else 10_000.0)
    assert from_misses(result).value == 300


def test_use_at_the_largest_size(measured):
    finding = from_memory_in_use(measured())
    assert finding.value == approx(300 - 5 - 20) and finding.note.startswith("at 300 MB")
    assert from_memory_in_use(measured(SweepCurve("shared-buffers", 2), (16, 32, 64, 96, 128), 100)).value == approx(70)
    assert from_memory_in_use(changed(measured(), "container:db01", "memory.inactive_file", lambda size: None)).value is None


def test_pressure(measured):
    finding = from_psi(measured())
    assert (finding.low, finding.value) == (240, 260)
    extra = changed(measured(), "container:db01", "psi.memory.some", lambda size: 0.2 if size < 300 else 0.0)
    assert from_psi(extra).value == 300
    assert "largest size" in from_psi(changed(measured(), "container:db01", "psi.memory.some", lambda size: 0.2)).note
    assert "page cache" in from_psi(measured(SweepCurve("shared-buffers", 2), (16, 32, 64, 96), 100)).note


def test_no_interval_below_the_smallest_size(measured):
    finding = from_psi(changed(measured(), "container:db01", "psi.io.some", lambda size: 0.0))
    assert finding.value == 100 and finding.low is None and "smallest size" in finding.note


def test_published_values_for_the_same_loads_only():
    assert published_working_set(SweepCurve("memory", 30)).startswith("1376 MB")
    assert published_working_set(SweepCurve("shared-buffers", 2)).startswith("524 MB")
    assert published_working_set(SweepCurve("memory", 8)) is None
    assert published_headroom((2, 30)).startswith("5664 MB of 2 × 4096 MB")
    assert published_rate((30,)) is None


def test_published_values_name_another_machine():
    for text in (published_working_set(SweepCurve("memory", 2)), published_headroom((30, 2)), published_rate((30, 2)), published_dip()):
        assert "another machine" in text


def test_published_numbers_agree():
    sizes = PUBLISHED_SIZES["memory"]
    assert 2 * PUBLISHED_CONFIGURED - sum(sizes.values()) == PUBLISHED_HEADROOM
    assert round(PUBLISHED_HEADROOM / (2 * PUBLISHED_CONFIGURED), 2) == PUBLISHED_RATE
