"""Proposals: series, their order, further points, variants, and that resume is replay."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.load import Script
from pgherd.model.trial import Trial
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.propose import planned, propose

Build = Callable[..., ScalingOptions]


def clients(trial: Trial) -> int:
    return int(trial.point["clients"])


def test_each_series_holds_every_number_of_clients_in_another_order(options: Build) -> None:
    trials = propose(options(), []).trials
    series = [[clients(trial) for trial in trials[i : i + 8]] for i in (0, 8, 16)]
    assert len(trials) == 24
    assert all(sorted(one) == [1, 2, 3, 4, 6, 8, 12, 16] for one in series)
    assert len({tuple(one) for one in series}) == 3
    assert [clients(t) for t in propose(options(seed=2), []).trials] != [clients(t) for t in trials]
    assert len({trial.key() for trial in trials}) == 24
    assert all(trial.point == {"clients": clients(trial)} for trial in trials)


def test_one_container_with_all_cores_and_threads_up_to_them(options: Build) -> None:
    for trial in planned(options()):
        ((place, host, container, _, _),) = trial.deployment.databases()
        assert (host.cores, container.vcpus, container.cpu_mode) == (4, 4, "none")
        (load,) = trial.phases[0].loads.values()
        assert list(trial.phases[0].loads) == [str(place)]
        assert (load.clients, load.threads) == (clients(trial), min(clients(trial), 4))


def test_cpu_bound_is_meant_only_where_it_can_be_expected(options: Build) -> None:
    for trial in planned(options()):
        assert set(trial.intents) == {"cached", "not-client-bound"} | ({"cpu-bound"} if clients(trial) >= 8 else set())
    for scripts in ((Script(source="builtin:tpcb-like"),), (Script(source="/own.sql"),)):
        assert not any("cpu-bound" in trial.intents for trial in planned(options(scripts=scripts)))


def test_variants_follow_each_other_within_a_series(variants: Build) -> None:
    given = variants({"old": {"pg_version": "15.18"}, "new": {}, "odd": {"settings": {"jit": "off"}}}, clients=(1, 2, 4))
    trials = propose(given, []).trials
    order = [str(trial.point["variant"]) for trial in trials]
    runs = [(name, len(list(group))) for name, group in itertools.groupby(order)]
    assert [length for _, length in runs] == [3] * 9, "each variant is measured whole before the next, and never twice in a row"
    assert all({name for name, _ in runs[i : i + 3]} == {"old", "new", "odd"} for i in (0, 3, 6))
    assert len({tuple(name for name, _ in runs[i : i + 3]) for i in (0, 3, 6)}) > 1
    assert {container.name for trial in trials for _, container in trial.deployment.containers()} == {"db01"}
    assert {s.version for t in trials if t.point["variant"] == "old" for _, _, s in t.deployment.servers()} == {"15.18"}
    assert {trial.state for trial in trials} == {"warm"}
    assert len({trial.key() for trial in trials}) == 27


def test_further_points_come_where_the_curve_is_least_certain(options: Build, server: Any, shape: Any) -> None:
    given = options(clients=(1, 2, 4, 8, 16), budget_seconds=400)
    results, _ = server(given, {"": shape(knee=6.0, slope=0.1)}).until_stop()
    added = [trial for trial in (result.trial for result in results) if trial.reason.startswith("added")]
    assert {clients(trial) for trial in added} & {5, 6, 7}, "around the knee"
    assert Counter(clients(trial) for trial in added).most_common()[-1][1] <= 3
    assert all(f"{clients(trial)} clients" in trial.reason for trial in added)


def test_a_peak_at_the_edge_is_looked_for_beyond_it(options: Build, server: Any, shape: Any) -> None:
    given = options(clients=(1, 2, 4), budget_seconds=600, most=16)
    results, _ = server(given, {"": shape(knee=9.0, slope=0.0)}).until_stop()
    assert max(clients(result.trial) for result in results) > 9
    results, _ = server(options(clients=(1, 2, 4), most=4, budget_seconds=600), {"": shape(knee=9.0)}).until_stop()
    assert max(clients(result.trial) for result in results) == 4, "the server is not set up for more"


def test_only_the_numbers_that_were_asked_for(options: Build, server: Any) -> None:
    given = options(clients=(1, 8, 16), refine=False, budget_seconds=600)
    results, _ = server(given).until_stop()
    assert {clients(result.trial) for result in results} == {1, 8, 16}
    results, _ = server(options(clients=(1, 8, 16), budget_seconds=None)).until_stop()
    assert len(results) == 9, "without a budget there are neither further points nor repeats"


def test_added_points_are_measured_of_all_variants(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"old": {"pg_version": "15.18"}, "new": {}}, clients=(1, 2, 4, 8), budget_seconds=1000)
    results, _ = server(given, {"old": shape(knee=6.0, slope=0.0), "new": shape(knee=6.0, slope=0.0)}).until_stop()
    added = Counter((str(r.trial.point["variant"]), clients(r.trial)) for r in results if r.trial.reason.startswith("added"))
    assert {n for _, n in added}
    assert all(added[variant, n] == 3 for _, n in added for variant in ("old", "new"))


def test_tainted_trials_are_measured_again(options: Build, server: Any) -> None:
    given = options(clients=(1, 4), budget_seconds=None)
    results, _ = server(given, taint=lambda t: "steal" if t.key() == "clients=4#1" else None).until_stop()
    assert [r.trial.key() for r in results if r.trial.reason.startswith("rerun")] == ["clients=4#3"]


@pytest.mark.parametrize("cut", [0, 1, 5, 11, 20])
def test_resume_is_replay(variants: Build, server: Any, shape: Any, cut: int) -> None:
    given = variants({"a": {}, "b": {"settings": {"jit": "off"}}}, clients=(1, 4, 8), budget_seconds=300)
    shapes = {"a": shape(), "b": shape(each=9000)}
    whole, _ = server(given, shapes).until_stop()
    begun = whole[:cut]
    after = [trial.key() for trial in propose(given, begun).trials]
    assert after[0] == whole[cut].trial.key()
    assert not set(after) & {result.trial.key() for result in begun}


def test_no_trial_goes_far_beyond_the_budget(options: Build, server: Any) -> None:
    given = options(budget_seconds=200)
    results, stop = server(given).until_stop()
    assert sum(result.ended - result.started for result in results) <= 200
    assert "21 of 24 planned trials" in stop
