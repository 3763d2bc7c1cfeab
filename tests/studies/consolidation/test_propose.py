from collections import Counter

from pgherd.studies.consolidation.propose import planned, points, propose


def keys(trials):
    return [trial.key() for trial in trials]


def test_a_block_holds_every_combination_once(make_options):
    options = make_options(rates=(0.0, 0.3, 0.55), blocks=3)
    counts = Counter((trial.point["scheme"], trial.point["buffers"], trial.point["rate"], trial.repeat) for trial in planned(options))
    assert len(counts) == 4 * 2 * 3 * 3 and set(counts.values()) == {1}


def test_blocks_are_mixed_by_the_recorded_seed(make_options):
    first, again, other = (keys(planned(make_options(seed=seed, blocks=2))) for seed in (7, 7, 8))
    assert first == again and first != other
    assert sorted(first) == sorted(other)
    blocks = [[key.partition("#")[0] for key in first if key.endswith(f"#{block}")] for block in (0, 1)]
    assert blocks[0] != blocks[1], "each block in an order of its own"
    assert blocks[0] != [f"buffers={p['buffers']},rate={p['rate']},scheme={p['scheme']}" for p in points(make_options())]


def test_schemes_that_cannot_be_had_are_left_out(make_options):
    options = make_options(unavailable={4: "no compiler"})
    assert {trial.point["scheme"] for trial in planned(options)} == {1, 2, 3}
    nothing = propose(make_options(schemes=(4,), unavailable={4: "no compiler"}), [])
    assert nothing.stop == "no scheme that was asked for can be had here"


def test_resume_proposes_what_is_missing(make_options, simulate):
    simulator = simulate(make_options())
    every = propose(simulator.options, []).trials
    done = [simulator.run(trial) for trial in every[:3]]
    assert keys(propose(simulator.options, done).trials) == keys(every[3:])


def test_a_tainted_trial_is_measured_again(make_options, simulate):
    first = []

    def taint(trial):
        if not first:
            first.append(trial.key())
        return "steal" if trial.key() == first[0] else None

    results = simulate(make_options(), taint=taint).all()
    again = [result.trial for result in results if result.trial.reason.startswith("rerun")]
    assert [trial.point for trial in again] == [results[0].trial.point]
    assert again[0].repeat == 1, "beyond the blocks' own"


def test_what_was_ended_for_want_of_memory_is_not_run_again(make_options, simulate):
    options = make_options(rates=(0.0, 0.5))
    results = simulate(options, kill=lambda trial: "db1" if trial.point["rate"] else None).all()
    assert len(results) == len(planned(options))


def test_a_budget_ends_the_study_without_repeats_out_of_a_block(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(25,), budget_seconds=1000)
    results = simulate(options).all()
    assert len(results) == 2, "further repeats of one scheme alone would pair with nothing"
