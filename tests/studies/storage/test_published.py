from pgherd.studies.storage import published


def test_the_source_is_named():
    assert "E11" in published.SOURCE and "10 ×" in published.BURST_RATIO and "0.9" in published.STALLS
