import pytest

from pgherd.analysis.histogram import histogram
from pgherd.studies.io_profile.options import trial
from pgherd.studies.io_profile.study import STUDY
from pgherd.studies.io_profile.trial_profile import profile_of, quantile_ms
from pgherd.study.device_io import io_rows


def test_the_two_devices_are_separate(build, simulated):
    profile = profile_of(simulated(trial(build(), 0)))
    assert profile.wal_separate and (profile.data.name, profile.wal.name) == ("sda", "sdb")
    assert (profile.wal_rate_device, profile.wal_rate_postgres) == (pytest.approx(2.0), pytest.approx(1.0))
    assert profile.checkpoint_write_rate == pytest.approx(100 * 8192 / 1e6) and profile.relation_write_rate is None
    assert profile.stalls == () and profile.stall_seconds == 0 and profile.share_under_1ms is None


def test_a_wal_device_on_the_datas_device_passes_through(build, simulated):
    """sdb is a loop device on a file on sda, through a volume in between."""
    result = simulated(trial(build(), 0))
    (phase,) = result.phases
    data, wal = phase.io.devices
    between = data.model_copy(update={"number": "253:0", "name": "dm-0", "roles": {}, "below": ["8:0"]})

    def seen(below):
        devices = [data, wal.model_copy(update={"below": below}), between]
        io = phase.io.model_copy(update={"devices": devices})
        return result.model_copy(update={"phases": [phase.model_copy(update={"io": io})]})

    profile = profile_of(seen(["253:0"]))
    assert profile.wal_separate and profile.wal_passes_through and profile.wal_rate_device == pytest.approx(2.0), (
        "what the WAL's own device sees is the WAL's"
    )
    assert profile.burst_ratio is None and profile.data_rate_device is None
    analysis = STUDY.analyse(build(), [seen(["253:0"])])
    assert any("passes its requests on to the data's" in warning for warning in analysis.warnings)
    assert all(
        "data_burst_to_wal_ratio" not in row or row["data_burst_to_wal_ratio"].value is None for row in io_rows([seen(["253:0"])])[0]
    )
    separate = profile_of(seen([]))
    assert not separate.wal_passes_through and separate.burst_ratio == pytest.approx(10) and separate.data_rate_device is not None


@pytest.mark.parametrize("role", ["data", "tablespace"])
def test_a_wal_device_below_data_is_not_separate(build, simulated, role):
    """Data, or a tablespace, on a loop device on a file on sdb, through a volume in between."""
    result = simulated(trial(build(), 0))
    (phase,) = result.phases
    data, wal = phase.io.devices
    between = data.model_copy(update={"number": "253:0", "name": "dm-0", "roles": {}, "below": ["8:16"]})
    loop = data.model_copy(update={"number": "7:0", "name": "loop0", "roles": {role: ["db01/pg"]}, "below": ["253:0"]})
    devices = [loop, wal, between, *([data] if role == "tablespace" else [])]
    observed = result.model_copy(update={"phases": [phase.model_copy(update={"io": phase.io.model_copy(update={"devices": devices})})]})
    profile = profile_of(observed)
    assert not profile.wal_separate and not profile.wal_passes_through
    assert (profile.burst_ratio, profile.wal_rate_device, profile.data_rate_device) == (None, None, None)
    analysis = STUDY.analyse(build(), [observed])
    assert any("the WAL has no device to itself" in warning for warning in analysis.warnings)
    assert not any("pg_stat_wal" in warning for warning in analysis.warnings), "sdb's writes are not compared with PostgreSQL's WAL"
    assert all("data_burst_to_wal_ratio" not in row or row["data_burst_to_wal_ratio"].value is None for row in io_rows([observed])[0])


def test_failed_trials_and_those_without_a_view_have_no_profile(build, simulated):
    result = simulated(trial(build(), 0))
    blind = result.model_copy(update={"phases": [phase.model_copy(update={"io": None}) for phase in result.phases]})
    assert profile_of(blind) is None and profile_of(result.model_copy(update={"error": "x"})) is None


def test_a_traced_device_without_requests_does_not_hide_the_others(build, simulated):
    result = simulated(trial(build(), 0), traced=True)
    (phase,) = result.phases

    def share(trace):
        idle = phase.io.devices[0].model_copy(update={"number": "8:32", "name": "sdc", "trace": trace})
        observed = phase.io.model_copy(update={"devices": [*phase.io.devices, idle]})
        return profile_of(result.model_copy(update={"phases": [phase.model_copy(update={"io": observed})]})).share_under_1ms

    assert share({}) == pytest.approx(0.9, abs=0.01) and share(None) is None


def test_quantiles_in_ms():
    assert quantile_ms(histogram([4000] * 100), 0.5) == pytest.approx(4.0, rel=1 / 32)
    assert quantile_ms({}, 0.5) is None
