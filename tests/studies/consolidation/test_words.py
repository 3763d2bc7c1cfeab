from pgherd.studies.consolidation.seen import Trials
from pgherd.studies.consolidation.tables import scheme_rows
from pgherd.studies.consolidation.words import answer


def said(simulator):
    trials = Trials(simulator.options, simulator.all())
    return answer(simulator.options, trials, scheme_rows(simulator.options, trials))


def test_one_scheme_has_its_number_and_nothing_else(make_options, simulate):
    assert said(simulate(make_options(schemes=(3,), buffers=(25,)))) == "With 25 % buffers M/M/M does 3,840 new orders/min."


def test_a_ratio_of_schemes_with_different_vcpus_has_the_correction_beside_it(make_options, simulate):
    one_block = said(simulate(make_options(schemes=(1, 3), buffers=(25,))))
    assert "M/M/M came to the most, 3,840 new orders/min, 1.20 × 1/1/M, 1.13 × with E4's correction for vCPUs (one block" in one_block
    three = said(simulate(make_options(schemes=(1, 2, 3), buffers=(25,), blocks=3), noise=0.001))
    assert "× 1/1/M, 1.13 (1.1" in three
    assert "1/M/M does 0.90 (0.90 … 0.90) × 1/1/M;" in three, "both share their vCPUs"


def test_two_blocks_claim_nothing_either(make_options, simulate):
    assert said(simulate(make_options(buffers=(25,), blocks=2))).endswith("(two blocks: no interval, so no difference is claimed).")


def test_where_too_few_of_many_blocks_have_both_there_is_no_interval(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(25,), blocks=3)
    text = said(simulate(options, kill=lambda trial: "db1" if trial.point["scheme"] == 3 and trial.repeat else None))
    assert "M/M/M came to the most, 3,840 new orders/min, 1.20 × 1/1/M, 1.13 × with E4's correction for vCPUs (no interval)" in text


def test_what_is_left_at_the_highest_rate(make_options, simulate):
    text = said(simulate(make_options(schemes=(1, 3), buffers=(75,), rates=(0.0, 0.25, 0.5), blocks=3), noise=0.001))
    assert "at 50 % overcommitment they keep of their own baselines: 1/1/M 40 % (" in text
    assert "M/M/M 80 % (" in text and "25 %" not in text


def test_a_rate_at_which_all_were_ended_is_not_the_one_that_is_told(make_options, simulate):
    options = make_options(schemes=(1,), buffers=(75,), rates=(0.0, 0.25, 0.5))
    text = said(simulate(options, kill=lambda trial: "all" if trial.point["rate"] == 0.5 else None))
    assert "at 25 % overcommitment they keep of their own baselines: 1/1/M 70 %" in text
    assert "; the kernel ended servers for want of memory: 1/1/M at 50 % (one block" in text


def test_who_was_ended_is_not_left_out_beside_those_who_were_not(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(75,), rates=(0.0, 0.25, 0.5))
    text = said(simulate(options, kill=lambda trial: "db1" if trial.point["rate"] and trial.point["scheme"] == 3 else None))
    assert "at 50 % overcommitment they keep of their own baselines: 1/1/M 40 %;" in text
    assert "the kernel ended servers for want of memory: M/M/M at 25 % and at 50 %" in text


def test_a_size_of_buffers_at_which_all_were_ended_is_not_passed_over(make_options, simulate):
    options = make_options(schemes=(1, 3), buffers=(25, 75), rates=(0.0, 0.5))
    text = said(simulate(options, kill=lambda trial: "db1" if trial.point["buffers"] == 75 else None))
    assert text.startswith("With 25 % buffers ")
    ended = "1/1/M undercommitted and at 50 %, M/M/M undercommitted and at 50 %"
    assert f"; with 75 % buffers the kernel ended servers for want of memory: {ended} (one block" in text


def test_without_a_baseline_and_without_an_end_nothing_is_said(make_options, simulate):
    trials = simulate(make_options(schemes=(1,), buffers=(75,), rates=(0.0, 0.5)))
    rows = scheme_rows(trials.options, Trials(trials.options, trials.all()))
    lost = [{**row, "normalised": None} for row in rows if row["rate"]]
    assert answer(trials.options, Trials(trials.options, []), lost).startswith("No scheme has an undercommitted baseline")
