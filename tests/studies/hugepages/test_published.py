import pytest

from pgherd.studies.hugepages import published


def test_the_published_figures_are_those_of_the_reference():
    assert published.gain("2MB") == pytest.approx(7.5, abs=0.05) and published.gain("1GB") == pytest.approx(12, abs=0.1)
    assert published.gain("thp") is None and published.words("none") is None
