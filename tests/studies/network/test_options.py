import pytest
from pydantic import ValidationError


def test_one_stream_is_always_among_them(options):
    assert options(streams=(8, 4, 4)).streams == (1, 4, 8)


@pytest.mark.parametrize("streams", [(), (0,), (1, 129)])
def test_what_iperf3_does_not_take_is_refused(options, streams):
    with pytest.raises(ValidationError, match="from 1 to 128"):
        options(streams=streams)
