from pgherd.studies.io_profile import published


def test_the_source_is_named():
    told = [published.BURST_RATIO, published.WAL_SIZE, published.WRITE_AWAIT, published.STALLS, published.IOPS, published.MANY_DISKS]
    assert all(text.endswith("(Gary Little, n0derunner.com)") for text in told)
    assert "10 ×" in published.BURST_RATIO and "0.9" in published.STALLS
