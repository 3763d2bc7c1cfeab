from pgherd.studies.disk.access import DEFAULT, MIX, TESTS


def test_the_tests_are_those_of_e12_and_the_mix():
    assert MIX in TESTS and set(DEFAULT) == set(TESTS) - {MIX}
    assert {(test.rw, test.bytes) for name, test in TESTS.items() if name.startswith("random")} == {("randread", 8192), ("randwrite", 8192)}
    assert {test.bytes for name, test in TESTS.items() if name.startswith("sequential")} == {2**20}
    assert all((test.figure == "latency") == (not test.deep) for test in TESTS.values())
