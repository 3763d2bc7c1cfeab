import pytest

from pgherd.analysis.histogram import histogram
from pgherd.studies.storage.observed import observe, quantile_ms
from pgherd.studies.storage.propose import trial


def test_the_two_devices_are_told_apart(build, simulated):
    found = observe(simulated(trial(build(), 0)))
    assert found.apart and (found.data.name, found.wal.name) == ("sda", "sdb")
    assert (found.wal_written, found.wal_generated) == (pytest.approx(2.0), pytest.approx(1.0))
    assert found.checkpoint_written == pytest.approx(100 * 8192 / 2**20) and found.relations_written is None
    assert found.stalls == () and found.stalled == 0 and found.fast_share is None


def test_a_trial_without_a_view_or_that_failed_is_not_observed(build, simulated):
    result = simulated(trial(build(), 0))
    blind = result.model_copy(update={"phases": [phase.model_copy(update={"io": None}) for phase in result.phases]})
    assert observe(blind) is None and observe(result.model_copy(update={"error": "x"})) is None


def test_a_traced_device_without_requests_hides_nothing_of_the_others(build, simulated):
    result = simulated(trial(build(), 0), traced=True)
    (phase,) = result.phases

    def fast(trace):
        idle = phase.io.devices[0].model_copy(update={"number": "8:32", "name": "sdc", "trace": trace})
        seen = phase.io.model_copy(update={"devices": [*phase.io.devices, idle]})
        return observe(result.model_copy(update={"phases": [phase.model_copy(update={"io": seen})]})).fast_share

    assert fast({}) == pytest.approx(0.9, abs=0.01) and fast(None) is None


def test_quantiles_in_ms():
    assert quantile_ms(histogram([4000] * 100), 0.5) == pytest.approx(4.0, rel=1 / 32)
    assert quantile_ms({}, 0.5) is None
