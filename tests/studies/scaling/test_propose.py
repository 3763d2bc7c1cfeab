"""Proposals: series, order, additional points, variants, and replay after an interruption."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.load import Script
from pgherd.model.trial import Trial
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.propose import medians, next_clients, planned, propose, uncertainties

Build = Callable[..., ScalingOptions]


def clients(trial: Trial) -> int:
    return int(trial.point["clients"])


def test_each_series_holds_every_number_of_clients_in_another_order(options: Build) -> None:
    trials = propose(options(), []).trials
    series = [[clients(trial) for trial in trials[i : i + 8]] for i in (0, 8, 16)]
    assert len(trials) == 24
    assert all(sorted(sery) == [1, 2, 3, 4, 6, 8, 12, 16] for sery in series)
    assert len({tuple(item) for item in series}) == 3
    assert [clients(t) for t in propose(options(seed=2), []).trials] != [clients(t) for t in trials]
    assert len({trial.key() for trial in trials}) == 24
    assert all(trial.point == {"clients": clients(trial)} for trial in trials)


def test_one_container_with_all_cores_and_threads_up_to_them(options: Build) -> None:
    for trial in planned(options()):
        ((location, host, container, _, _),) = trial.deployment.databases()
        assert (host.cores, container.vcpus, container.cpu_mode) == (4, 4, "none")
        (load,) = trial.phases[0].loads.values()
        assert list(trial.phases[0].loads) == [str(location)]
        assert (load.clients, load.threads) == (clients(trial), min(clients(trial), 4))


def test_cpu_bound_is_meant_only_where_it_can_be_expected(options: Build) -> None:
    for trial in planned(options()):
        assert set(trial.validity_checks) == {"cached", "not-client-bound"} | ({"cpu-bound"} if clients(trial) >= 8 else set())
    for scripts in ((Script(source="builtin:tpcb-like"),), (Script(source="/own.sql"),)):
        assert not any("cpu-bound" in trial.validity_checks for trial in planned(options(scripts=scripts)))


def test_variants_follow_each_other_within_a_series(variants: Build) -> None:
    study_options = variants({"old": {"pg_version": "15.18"}, "new": {}, "odd": {"settings": {"jit": "off"}}}, clients=(1, 2, 4))
    trials = propose(study_options, []).trials
    order = [str(trial.point["variant"]) for trial in trials]
    runs = [(name, len(list(group))) for name, group in itertools.groupby(order)]
    assert [length for _, length in runs] == [3] * 9, "each variant is measured completely before the next, and never twice in a row"
    assert all({name for name, _ in runs[i : i + 3]} == {"old", "new", "odd"} for i in (0, 3, 6))
    assert len({tuple(name for name, _ in runs[i : i + 3]) for i in (0, 3, 6)}) > 1
    assert {container.name for trial in trials for _, container in trial.deployment.containers()} == {"db01"}
    assert {s.version for trial in trials if trial.point["variant"] == "old" for _, _, s in trial.deployment.servers()} == {"15.18"}
    assert {trial.state for trial in trials} == {"warm"}
    assert len({trial.key() for trial in trials}) == 27


def test_further_points_come_where_the_curve_is_least_certain(options: Build, server: Any, shape: Any) -> None:
    study_options = options(clients=(1, 2, 4, 8, 16), time_budget=400)
    results, _ = server(study_options, {"": shape(knee=6.0, slope=0.1)}).until_stop()
    added = [trial for trial in (result.trial for result in results) if trial.reason.startswith("added")]
    assert {clients(trial) for trial in added} & {5, 6, 7}, "around the knee"
    assert Counter(clients(trial) for trial in added).most_common()[-1][1] <= 3
    assert all(f"{clients(trial)} clients" in trial.reason for trial in added)


def test_a_peak_at_the_edge_is_looked_for_beyond_it(options: Build, server: Any, shape: Any) -> None:
    study_options = options(clients=(1, 2, 4), time_budget=600, max_clients=16)
    results, _ = server(study_options, {"": shape(knee=9.0, slope=0.0)}).until_stop()
    assert max(clients(result.trial) for result in results) > 9
    results, _ = server(options(clients=(1, 2, 4), max_clients=4, time_budget=600), {"": shape(knee=9.0)}).until_stop()
    assert max(clients(result.trial) for result in results) == 4, "the server is not set up for more"


def test_only_the_numbers_that_were_asked_for(options: Build, server: Any) -> None:
    study_options = options(clients=(1, 8, 16), refine=False, time_budget=600)
    results, _ = server(study_options).until_stop()
    assert {clients(result.trial) for result in results} == {1, 8, 16}
    results, _ = server(options(clients=(1, 8, 16), time_budget=None)).until_stop()
    assert len(results) == 9, "without a budget there are neither further points nor repeats"


def test_added_points_are_measured_of_all_variants(variants: Build, server: Any, shape: Any) -> None:
    study_options = variants({"old": {"pg_version": "15.18"}, "new": {}}, clients=(1, 2, 4, 8), time_budget=1000)
    results, _ = server(study_options, {"old": shape(knee=6.0, slope=0.0), "new": shape(knee=6.0, slope=0.0)}).until_stop()
    added = Counter((str(r.trial.point["variant"]), clients(r.trial)) for r in results if r.trial.reason.startswith("added"))
    assert {n for _, n in added}
    assert all(added[variant, n] == 3 for _, n in added for variant in ("old", "new"))


def test_tainted_trials_are_measured_again(options: Build, server: Any) -> None:
    study_options = options(clients=(1, 4), time_budget=None)
    results, _ = server(study_options, taint=lambda t: "steal" if t.key() == "clients=4#1" else None).until_stop()
    assert [r.trial.key() for r in results if r.trial.reason.startswith("rerun")] == ["clients=4#3"]


@pytest.mark.parametrize("cut", [0, 1, 5, 11, 20])
def test_resume_is_replay(variants: Build, server: Any, shape: Any, cut: int) -> None:
    study_options = variants({"a": {}, "b": {"settings": {"jit": "off"}}}, clients=(1, 4, 8), time_budget=300)
    shapes = {"a": shape(), "b": shape(each=9000)}
    complete, _ = server(study_options, shapes).until_stop()
    begun = complete[:cut]
    after = [trial.key() for trial in propose(study_options, begun).trials]
    assert after[0] == complete[cut].trial.key()
    assert not set(after) & {result.trial.key() for result in begun}


def test_no_trial_goes_far_beyond_the_budget(options: Build, server: Any) -> None:
    study_options = options(time_budget=200)
    results, stop = server(study_options).until_stop()
    assert sum(result.ended - result.started for result in results) <= 200
    assert "21 of 24 planned trials" in stop


def test_a_hinge_is_least_certain_where_it_bends() -> None:
    """Linear to 6 clients, then flat: measured at 1, 2, 4, 8, 10 and 16, it is uncertain between 4 and 8 only."""
    result = dict(uncertainties([(n, min(n, 6.0)) for n in (1, 2, 4, 8, 10, 16)]))
    assert max(result, key=result.__getitem__) == 6
    # The lines through (2, 2), (4, 4) and through (8, 6), (10, 6) meet at (6, 6), one above the chord's 5.
    assert result[6] == pytest.approx(1 / 6)
    assert result[3] == result[9] == pytest.approx(0)


def test_a_peak_may_hide_before_the_last_point() -> None:
    """No line bounds the last gap from the right: the curve may have a peak between 4 and 12 clients."""
    assert uncertainties([(2, 2.0), (4, 4.0), (12, 4.0)])[-1] == (8, pytest.approx(1.0))
    assert uncertainties([(2, 2.0), (4, 4.0), (8, 4.0), (12, 4.0)])[-1] == (9, pytest.approx(0.0))


@given(st.floats(0.01, 0.5), st.floats(0.0, 0.01), st.lists(st.integers(1, 60), min_size=3, max_size=8, unique=True))
def test_a_concave_curve_lies_within_what_is_said(sigma: float, kappa: float, clients: list[int]) -> None:
    def law(n: float) -> float:
        return n / (1 + sigma * (n - 1) + kappa * n * (n - 1))

    ordered = sorted(clients)
    curve = [(n, law(n)) for n in ordered]
    peak = max(x for _, x in curve)
    for n, doubt in uncertainties(curve)[:-1]:
        below = max(a for a in ordered if a < n)
        above = min(b for b in ordered if b > n)
        if not all(law(m + 1) - law(m) <= law(m) - law(m - 1) + 1e-12 for m in range(1, above + 8)):
            return  # the law turns convex past its peak
        chord = law(below) + (law(above) - law(below)) * (n - below) / (above - below)
        assert (law(n) - chord) / peak <= doubt + 1e-9


def test_too_few_points_have_no_doubts() -> None:
    assert uncertainties([]) == uncertainties([(1, 10.0)]) == []
    assert uncertainties([(1, 10.0), (2, 20.0), (3, 30.0)]) == [], "there is no whole number between neighbours"


def test_medians_are_of_clean_trials(options: Build, server: Any) -> None:
    planned_trials = planned(options(clients=(1, 4)))
    host = server(options(clients=(1, 4)), noise=0, taint=lambda t: "steal" if t.repeat == 0 or t.point["clients"] == 4 else None)
    assert medians(host.all(planned_trials), "") == [(1, pytest.approx(10_000)), (4, pytest.approx(28_000))]
    assert medians([], "") == []
    failed = server(options(clients=(1, 4)), fail=lambda t: "died").all(planned_trials)
    assert medians(failed, "") == []
    assert next_clients(options(), failed) is None


def test_nothing_is_added_to_a_curve_that_is_known(options: Build, server: Any, shape: Any) -> None:
    study_options = options(clients=(1, 2, 3, 4, 5, 6, 7, 8))
    flat = shape(knee=4, slope=0.0, peak=100)
    assert next_clients(study_options, server(study_options, {"": flat}, noise=0).all(planned(study_options))) is None
