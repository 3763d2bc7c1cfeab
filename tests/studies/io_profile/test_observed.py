import pytest

from pgherd.analysis.histogram import histogram
from pgherd.studies.io_profile.observed import observe, quantile_ms
from pgherd.studies.io_profile.propose import trial
from pgherd.studies.io_profile.study import STUDY
from pgherd.study.device_io import io_rows


def test_the_two_devices_are_told_apart(build, simulated):
    found = observe(simulated(trial(build(), 0)))
    assert found.apart and (found.data.name, found.wal.name) == ("sda", "sdb")
    assert (found.wal_written, found.wal_generated) == (pytest.approx(2.0), pytest.approx(1.0))
    assert found.checkpoint_written == pytest.approx(100 * 8192 / 2**20) and found.relations_written is None
    assert found.stalls == () and found.stalled == 0 and found.fast_share is None


def test_a_wal_that_reaches_the_datas_device_by_another_is_not_apart_from_it(build, simulated):
    """sdb is a loop device on a file on sda, by way of a volume in between."""
    result = simulated(trial(build(), 0))
    (phase,) = result.phases
    data, wal = phase.io.devices
    between = data.model_copy(update={"number": "253:0", "name": "dm-0", "roles": {}, "below": ["8:0"]})

    def seen(below):
        devices = [data, wal.model_copy(update={"below": below}), between]
        io = phase.io.model_copy(update={"devices": devices})
        return result.model_copy(update={"phases": [phase.model_copy(update={"io": io})]})

    found = observe(seen(["253:0"]))
    assert found.apart and found.through and found.wal_written == pytest.approx(2.0), "what the WAL's own device sees is the WAL's"
    assert found.burst_ratio is None and found.data_written is None
    said = STUDY.analyse(build(), [seen(["253:0"])])
    assert any("passes its requests on to the data's" in warning for warning in said.warnings)
    assert all("burst_ratio" not in row or row["burst_ratio"].value is None for row in io_rows([seen(["253:0"])])[0])
    apart = observe(seen([]))
    assert not apart.through and apart.burst_ratio == pytest.approx(10) and apart.data_written is not None


@pytest.mark.parametrize("role", ["data", "tablespace"])
def test_a_wals_device_that_data_reach_by_another_is_not_the_wals_alone(build, simulated, role):
    """Data, or one tablespace of them, on a loop device on a file on sdb, by way of a volume in between."""
    result = simulated(trial(build(), 0))
    (phase,) = result.phases
    data, wal = phase.io.devices
    between = data.model_copy(update={"number": "253:0", "name": "dm-0", "roles": {}, "below": ["8:16"]})
    loop = data.model_copy(update={"number": "7:0", "name": "loop0", "roles": {role: ["db01/pg"]}, "below": ["253:0"]})
    devices = [loop, wal, between, *([data] if role == "tablespace" else [])]
    seen = result.model_copy(update={"phases": [phase.model_copy(update={"io": phase.io.model_copy(update={"devices": devices})})]})
    found = observe(seen)
    assert not found.apart and not found.through
    assert (found.burst_ratio, found.wal_written, found.data_written) == (None, None, None)
    said = STUDY.analyse(build(), [seen])
    assert any("no device is the WAL's alone" in warning for warning in said.warnings)
    assert not any("pg_stat_wal" in warning for warning in said.warnings), "sdb's writes are not held against PostgreSQL's WAL"
    assert all("burst_ratio" not in row or row["burst_ratio"].value is None for row in io_rows([seen])[0])


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
