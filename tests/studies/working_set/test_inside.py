"""The working set as it is seen from inside."""

from __future__ import annotations

import pytest
from pytest import approx

from pgherd.studies.working_set import inside
from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.options import MB, Curve
from pgherd.studies.working_set.propose import trial_at

MEMORY = Curve("memory", 30)
SIZES = (100, 150, 200, 240, 260, 300)


@pytest.fixture
def measured(server, options):
    def build(curve=MEMORY, sizes=SIZES, beyond=0, **more):
        own = options()
        return Measured(curve, server(own, **more).all([trial_at(own, curve, size, beyond, 0, "planned") for size in sizes]))

    return build


def changed(found: Measured, entity: str, name: str, take) -> Measured:
    """The same with another metric of each size; None takes it away."""
    results = []
    for result in found.trials:
        (phase,) = result.phases
        metrics = {key: dict(values) for key, values in phase.metrics.items()}
        value = take(found.size(result))
        metrics[entity].pop(name, None)
        if value is not None:
            metrics[entity][name] = value
        results.append(result.model_copy(update={"phases": [phase.model_copy(update={"metrics": metrics})]}))
    return Measured(found.curve, results)


def test_misses_end_between_two_sizes(measured):
    finding = inside.by_misses(measured())
    assert (finding.low, finding.value, finding.high) == (240, 260, 260)
    assert finding.confidence is None and "at most 5 %" in finding.method


def test_a_guest_is_seen_by_its_own_kernels_counts(measured):
    """What the host counts of a guest is its hypervisor."""

    def inside_a_guest(result):
        (host,) = result.trial.deployment.hosts
        guest = host.model_copy(update={"containers": tuple(one.model_copy(update={"runtime": "vm"}) for one in host.containers)})
        deployment = result.trial.deployment.model_copy(update={"hosts": (guest,)})
        (phase,) = result.phases
        own = phase.metrics["container:db01"]
        seen = {"vm.refault_file": own["memory.refault_file"], "memory.total": 300 * MB, "memory.available": 100 * MB}
        metrics = {**phase.metrics, "guest:db01": seen, "container:db01": {"memory.usage": 1e9}}
        trial = result.trial.model_copy(update={"deployment": deployment})
        return result.model_copy(update={"trial": trial, "phases": [phase.model_copy(update={"metrics": metrics})]})

    before = measured()
    found = Measured(before.curve, [inside_a_guest(result) for result in before.trials])
    assert inside.by_misses(found).value == inside.by_misses(before).value
    use = inside.by_use(found)
    assert use.value == 200 and "calls available" in use.method
    assert inside.by_pressure(found).value is None


def test_swapping_in_is_a_miss_too(measured):
    found = changed(measured(), "container:db01", "memory.refault_anon", lambda size: 5000.0 if size < 280 else 0.0)
    assert inside.by_misses(found).value == 300
    assert inside.refaults(found.trials[0]) > inside.refaults(measured().trials[0])


def test_misses_of_shared_buffers(measured):
    finding = inside.by_misses(measured(Curve("buffers", 2), (16, 32, 64, 96, 128), 100))
    assert (finding.low, finding.value) == (64, 96)


def test_misses_that_were_not_seen_or_never_end(measured):
    unseen = inside.by_misses(changed(measured(), "container:db01", "memory.refault_file", lambda size: None))
    assert unseen.value is None and "older kernels" in unseen.note
    endless = inside.by_misses(changed(measured(), "container:db01", "memory.refault_file", lambda size: 10_000.0))
    assert endless.value is None and "even at the largest size" in endless.note
    none = inside.by_misses(changed(measured(), "container:db01", "memory.refault_file", lambda size: 0.0))
    assert none.value is None and "even at the smallest size" in none.note


def test_one_dip_is_not_enough_memory(measured):
    """From that size on: a size in between that happens to miss little does not count."""
    found = changed(measured(), "container:db01", "memory.refault_file", lambda size: 0.0 if size in (150, 300) else 10_000.0)
    assert inside.by_misses(found).value == 300


def test_use_at_the_largest_size(measured):
    finding = inside.by_use(measured())
    assert finding.value == approx(300 - 5 - 20) and finding.note.startswith("at 300 MB")
    assert inside.by_use(measured(Curve("buffers", 2), (16, 32, 64, 96, 128), 100)).value == approx(70)
    assert inside.by_use(changed(measured(), "container:db01", "memory.inactive_file", lambda size: None)).value is None


def test_pressure(measured):
    finding = inside.by_pressure(measured())
    assert (finding.low, finding.value) == (240, 260)
    more = changed(measured(), "container:db01", "psi.memory.some", lambda size: 0.2 if size < 300 else 0.0)
    assert inside.by_pressure(more).value == 300
    assert "largest size" in inside.by_pressure(changed(measured(), "container:db01", "psi.memory.some", lambda size: 0.2)).note
    assert "page cache" in inside.by_pressure(measured(Curve("buffers", 2), (16, 32, 64, 96), 100)).note


def test_no_interval_below_the_smallest_size(measured):
    finding = inside.by_pressure(changed(measured(), "container:db01", "psi.io.some", lambda size: 0.0))
    assert finding.value == 100 and finding.low is None and "smallest size" in finding.note
