import pytest

from pgherd.studies.consolidation import published


@pytest.mark.parametrize("key", published.BASELINES)
def test_productivity_is_throughput_over_cores_as_published(key):
    """E4's third line follows from its first two, to the rounding of the CPU column."""
    one = published.BASELINES[key]
    assert 100 * one.notpm / one.cpu == pytest.approx(one.per_core, rel=2e-4)


def test_buffers_gain_as_published():
    """E4 says +12.1 % for scheme 3 and +13.2 % for scheme 4."""
    assert published.gain(3) == pytest.approx(1.121, abs=0.0006)
    assert published.gain(4) == pytest.approx(1.132, abs=0.0006)


def test_the_ratio_of_what_was_not_measured_is_none():
    assert published.ratio(25, 3, 1) == f"{52647.45 / 45303.41:.3f} ({published.SOURCE})"
    assert published.ratio(50, 3, 1) is None
