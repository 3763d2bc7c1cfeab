from pgherd.studies.disk.access import DEFAULT
from pgherd.studies.disk.published import E12, beside


def test_every_test_but_the_mix_has_its_figure_with_the_source():
    assert set(E12) == set(DEFAULT)
    assert beside("random-read") == {
        "experiment": "E12",
        "published": "1,160,551 IOPS, partly from a cache "
        "(Gary Little, n0derunner.com: a cluster of 4 nodes with shared storage, not one disk)",
    }
    assert beside("mix") == {}
