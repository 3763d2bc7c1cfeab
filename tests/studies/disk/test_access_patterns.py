from pgherd.studies.disk.access_patterns import DEFAULT, MIX, PUBLISHED, TESTS, published_fields


def test_the_tests_are_those_of_e12_and_the_mix():
    assert MIX in TESTS and set(DEFAULT) == set(TESTS) - {MIX}
    assert {(test.rw, test.bytes) for name, test in TESTS.items() if name.startswith("random")} == {("randread", 8192), ("randwrite", 8192)}
    assert {test.bytes for name, test in TESTS.items() if name.startswith("sequential")} == {2**20}
    assert all((test.quantity == "latency") == (not test.deep) for test in TESTS.values())


def test_every_test_but_the_mix_has_its_figure_with_the_source():
    assert set(PUBLISHED) == set(DEFAULT)
    assert published_fields("random-read") == {
        "experiment": "E12",
        "published": "1,160,551 IOPS, partly from a cache "
        "(Gary Little, n0derunner.com: a cluster of 4 nodes with shared storage, not one disk)",
    }
    assert published_fields("mix") == {}
