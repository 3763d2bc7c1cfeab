from pgherd.studies.consolidation.seen import Trials
from pgherd.studies.consolidation.tables import scheme_rows
from pgherd.studies.consolidation.words import answer


def said(simulator):
    trials = Trials(simulator.options, simulator.all())
    return answer(simulator.options, trials, scheme_rows(simulator.options, trials))


def test_one_scheme_has_its_number_and_nothing_else(make_options, simulate):
    assert said(simulate(make_options(schemes=(3,), buffers=(25,)))) == "With 25 % buffers M/M/M does 3,840 new orders/min."


def test_what_is_left_at_the_highest_rate(make_options, simulate):
    text = said(simulate(make_options(schemes=(1, 3), buffers=(75,), rates=(0.0, 0.25, 0.5), blocks=3), noise=0.001))
    assert "at 50 % overcommitment they keep of their own baselines: 1/1/M 40 % (" in text
    assert "M/M/M 80 % (" in text and "25 %" not in text


def test_a_rate_at_which_all_were_ended_is_not_the_one_that_is_told(make_options, simulate):
    options = make_options(schemes=(1,), buffers=(75,), rates=(0.0, 0.25, 0.5))
    text = said(simulate(options, kill=lambda trial: "all" if trial.point["rate"] == 0.5 else None))
    assert "at 25 % overcommitment they keep of their own baselines: 1/1/M 70 %" in text
