import pytest

from pgherd.model.deployment import Deployment
from pgherd.model.device_io import DeviceIo, DeviceView, Pattern
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.device_io import size_rows


def trial(number, sizes, direction="write"):
    pattern = Pattern(requests=sum(sizes.values()), bytes=0, sizes=sizes)
    io = DeviceIo(devices=[DeviceView(number="8:0", name="sda", roles={"wal": ["a/pg"]}, trace={direction: pattern, "all": pattern})])
    phase = PhaseResult(phase="steady", start=0.0, end=10.0, overlap=1.0, targets=[], io=io)
    request = Trial(point={}, deployment=Deployment(hosts=()), phases=())
    return TrialResult(id=f"{number:04d}", trial=request, started=0.0, ended=10.0, phases=[phase])


def rows_of(*trials):
    (view,) = trials[0].phases[0].io.devices
    return size_rows("x", trials, {"8:0": view}, {"8:0": "WAL"})


def test_each_size_has_its_share_of_the_requests_with_an_interval_over_trials():
    rows = rows_of(trial(1, {8192: 60, 16384: 40}), trial(2, {8192: 70, 16384: 30}), trial(3, {8192: 80, 16384: 20}))
    assert [(row["device"], row["roles"], row["direction"], row["request_bytes"]) for row in rows] == [
        ("sda", "WAL", "write", 8192),
        ("sda", "WAL", "write", 16384),
    ]
    share = rows[0]["share"]
    assert (share.value, share.unit, share.n) == (pytest.approx(70), "%", 3) and share.low < 60 < 80 < share.high


def test_of_hardly_any_requests_no_sizes_are_told():
    assert rows_of(trial(1, {8192: 20}), trial(2, {8192: 29})) == [] != rows_of(trial(1, {8192: 20}), trial(2, {8192: 30}))


def test_rare_sizes_and_those_that_were_not_counted_apart_are_taken_together():
    rows = rows_of(trial(1, {0: 10, 4096: 4, 8192: 986}))
    result = [(row["request_bytes"], row["requests"], row["share"].value) for row in rows]
    assert result == [(8192, 986, pytest.approx(98.6)), (None, 14, pytest.approx(1.4))]


def test_a_size_that_one_trial_never_saw_counts_as_none_of_it():
    rows = rows_of(trial(1, {8192: 100}), trial(2, {8192: 50, 65536: 50}))
    assert [(row["request_bytes"], row["share"].value) for row in rows] == [(8192, pytest.approx(75)), (65536, pytest.approx(25))]


def test_no_end_of_an_interval_lies_beyond_what_a_share_can_be():
    """Three trials whose shares scatter much; of the last all sizes are shown, so that nothing at all is left over."""
    shares = [row["share"] for row in rows_of(trial(1, {8192: 90, 512: 10}), trial(2, {8192: 995, 4096: 5}), trial(3, {8192: 10, 512: 3}))]
    assert shares[0].high == 100.0 and 0 <= shares[0].low <= shares[0].value
    assert all(share.low is None and "no interval: the 3 repeats range from 0 to " in share.note for share in shares[1:])


def test_what_was_not_traced_has_no_rows():
    assert rows_of(trial(1, {})) == []
