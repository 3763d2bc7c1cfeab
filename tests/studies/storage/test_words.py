from pgherd.model.finding import Finding
from pgherd.studies.storage import words
from pgherd.studies.storage.observed import observe
from pgherd.studies.storage.propose import trial


def test_the_answer_says_what_is_not_known(build):
    found = words.answer(build(), {"throughput": Finding(value=1234.0, unit="tps")})
    assert found == "At 1,234 tps nothing can be said of stalls of the WAL."


def test_stalls_of_each_side(build, simulated):
    plain, stalled = (observe(simulated(trial(build(), 0), stalled=seconds)) for seconds in ((), (15, 16)))
    assert words.stalls_of({"a": [stalled, plain], "b": [plain]}) == (
        "WAL writing: a had 1 stall (1 in checkpoints) in 2 trials, b had no stall in 1 trial"
    )
    assert words.stalls_of({"a": []}) == ""


def test_small_differences_of_the_views_are_not_worth_a_sentence(build, simulated):
    near = observe(simulated(trial(build(), 0), metrics={"wal.bytes": 1.8 * 2**20, "io.write_bytes": 1.5 * 2**20}))
    assert words.disagreements([near]) == []
    far = observe(simulated(trial(build(), 0), metrics={"wal.bytes": 2.0 * 2**20, "io.write_bytes": 9.0 * 2**20}))
    (said,) = words.disagreements([far])
    assert "9.00 MB/s of relations (pg_stat_io)" in said and "page cache" in said
