from pgherd.model.finding import Finding
from pgherd.studies.io_profile import words
from pgherd.studies.io_profile.observed import observe
from pgherd.studies.io_profile.propose import trial


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


def test_what_is_so_of_all_variants_is_said_once(build, simulated):
    near, far = (observe(simulated(trial(build(), 0), metrics={"wal.bytes": 2e6, "io.write_bytes": mb * 2.0**20})) for mb in (1.5, 9.0))
    both = words.warnings(build(), {"a": [far], "b": [far]})
    one = words.warnings(build(), {"a": [near], "b": [far]})
    assert len(both) == len(set(both)) and not any(said.startswith(("a", "b:")) and ": " in said[:5] for said in both)
    (differs,) = set(one) - set(both)
    assert differs.startswith("b: PostgreSQL wrote 9.00 MB/s")
    assert words.warnings(build(), {"a": [], "b": [near]})[0] == "a: no trial finished with an I/O view"
