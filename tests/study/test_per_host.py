import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.analysis import Analysis, Check
from pgherd.model.deployment import Host
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.per_host import imbalance, relative_rates, slowest, with_hosts

HOSTS = [Host(name="a", cores=2), Host(name="b", cores=2)]


def result(number, by_host, tainted=None):
    """``by_host``: host → throughput of each loaded database."""
    containers = {host: [{"name": f"{host}{i}", "servers": [{"bin": "/pg", "version": "18.6"}]} for i in range(2)] for host in ("a", "b")}
    trial = Trial.model_validate(
        {
            "point": {"databases": sum(map(len, by_host.values()))},
            "repeat": number,
            "deployment": {"hosts": [{"name": host, "containers": container} for host, container in containers.items()]},
            "phases": [{"loads": {}}],
        }
    )
    targets = [
        TargetResult(target=f"{host}/{host}{i}/pg/bench", driver="pgbench", transactions=1, throughput=value, first=0, last=1)
        for host, values in by_host.items()
        for i, value in enumerate(values)
    ]
    busy = {"cpu.user": 1.5, "cpu.online": 2.0, "cpu.idle": 0.5}
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=targets, metrics={"host:a": busy, "host:b": busy})
    return TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, phases=[phase], checks=[tainted] if tainted else [])


def analysed(*results):
    return with_hosts(Analysis(answer="x", grade="A", warnings=["before"]), results, HOSTS)


def test_hosts_are_compared_within_each_trial():
    analysis = analysed(
        result(0, {"a": [100, 100], "b": [90, 90]}), result(1, {"a": [210], "b": [190]}), result(2, {"a": [50, 70], "b": [54, 54]})
    )
    imbalance, slowest = analysis.findings["host_imbalance"], analysis.findings["slowest_host"]
    assert imbalance.value == pytest.approx((0.1 + 1 - 190 / 210 + 0.1) / 3) and imbalance.n == 3
    assert slowest.value == pytest.approx((90 / 95 + 190 / 200 + 54 / 57) / 3) and slowest.note.startswith("host b") and slowest.high < 1
    rows = {row["host"]: row for row in analysis.tables["hosts"]}
    assert rows["a"]["containers"] == 2 and rows["a"]["cores_allocated"] == 2
    assert rows["a"]["throughput_per_database"].value == pytest.approx((100 + 210 + 60) / 3)
    assert rows["b"]["cpu_used"].value == pytest.approx(1.5)
    assert analysis.warnings == ["before"] and analysis.answer == "x"


def test_a_difference_that_is_not_shown_is_not_claimed():
    analysis = analysed(result(0, {"a": [100], "b": [90]}), result(1, {"a": [90], "b": [100]}), result(2, {"a": [95], "b": [96]}))
    assert "not shown to be slower" in analysis.findings["slowest_host"].note


def test_trials_that_left_a_host_idle_say_nothing():
    analysis = analysed(result(0, {"a": [100]}), result(1, {"b": [10]}))
    assert analysis.findings["host_imbalance"].value is None and "loaded every host" in analysis.findings["host_imbalance"].note
    assert analysis.findings["slowest_host"].value is None and analysis.tables["hosts"][0]["relative_to_mean"].value is None


def test_trials_without_a_host_are_told():
    gone = Check(name="all-hosts-present", kind="noise", result="fail", observed="1 of 2; missing b", expected="every host", reason="lost")
    analysis = analysed(result(0, {"a": [100], "b": [99]}), result(1, {"a": [100]}, gone))
    assert analysis.warnings == ["before", "1 of 2 trials ran without all hosts (1 of 2; missing b); they are tainted"]
    assert analysis.findings["host_imbalance"].n == 1


def test_a_study_of_hosts_has_its_own_table_of_them():
    item = result(0, {"a": [100], "b": [99]})
    bare = item.trial.deployment.model_copy(update={"hosts": tuple(HOSTS)})
    analysis = analysed(item.model_copy(update={"trial": item.trial.model_copy(update={"deployment": bare})}))
    assert analysis.tables == {} and analysis.findings == {} and analysis.warnings == ["before"]


def alone(number, host, tps, clients=None):
    """A trial whose containers are all on one host, with clients on another perhaps."""
    outcome = result(number, {host: [tps]})
    own = [item for item in outcome.trial.deployment.hosts if item.name == host]
    bare = [Host(name=clients, cores=2)] if clients else []
    deployment = outcome.trial.deployment.model_copy(update={"hosts": (*own, *bare)})
    return outcome.model_copy(update={"trial": outcome.trial.model_copy(update={"deployment": deployment})})


def test_hosts_that_took_turns_are_shown_each_for_itself():
    analysis = analysed(alone(0, "a", 100), alone(1, "b", 50), alone(2, "a", 110))
    rows = {row["host"]: row for row in analysis.tables["hosts"]}
    assert rows["a"]["throughput_per_database"].value == pytest.approx(105) and rows["b"]["throughput_per_database"].value == pytest.approx(
        50
    )
    assert (
        rows["a"]["relative_to_mean"].value is None
        and "no trial loaded databases here and on another host" in rows["a"]["relative_to_mean"].note
    )
    assert "host_imbalance" not in analysis.findings and "slowest_host" not in analysis.findings


def test_a_host_of_clients_shows_what_they_cost():
    rows = {row["host"]: row for row in analysed(alone(0, "a", 100, clients="b")).tables["hosts"]}
    assert (
        rows["b"]["containers"] == 0
        and rows["b"]["throughput_per_database"].value is None
        and rows["b"]["cpu_used"].value == pytest.approx(1.5)
    )


def test_hosts_are_compared_without_that_of_the_clients():
    results = [result(0, {"a": [100], "b": [90]}), result(1, {"a": [100], "b": [92]})]
    hosts = with_hosts(Analysis(answer="x", grade="A"), results, [*HOSTS, Host(name="c", cores=2)], "c")
    assert hosts.findings["host_imbalance"].value == pytest.approx(0.09) and hosts.findings["slowest_host"].n == 2
    rows = {row["host"]: row for row in hosts.tables["hosts"]}
    assert rows["a"]["relative_to_mean"].value > 1 > rows["b"]["relative_to_mean"].value
    assert (
        rows["c"]["containers"] == 0
        and rows["c"]["relative_to_mean"].value is None
        and "no trial loaded databases here" in rows["c"]["relative_to_mean"].note
    )


def test_where_no_trial_is_clean_the_tainted_ones_are_shown_and_nothing_is_found():
    steal = Check(name="steal", kind="noise", result="fail", observed="9%", expected="2%", reason="x")
    analysis = analysed(*(result(number, {"a": [100], "b": [50]}, steal) for number in range(3)))
    row = analysis.tables["hosts"][1]
    assert row["throughput_per_database"].value == pytest.approx(50) and row["relative_to_mean"].value == pytest.approx(50 / 75)
    assert all(
        row[name].note.endswith("; only tainted trials: an indication")
        for name in ("throughput_per_database", "relative_to_mean", "cpu_used")
    )
    assert analysis.findings["slowest_host"].value is None and analysis.findings["slowest_host"].note == "no clean trial loaded every host"
    mixed = analysed(result(0, {"a": [100], "b": [50]}, steal), result(1, {"a": [100], "b": [99]})).tables["hosts"][1]
    assert mixed["throughput_per_database"].value == pytest.approx(99) and "tainted" not in mixed["throughput_per_database"].note
    hosts = analysed(alone(0, "a", 100).model_copy(update={"checks": [steal]})).tables["hosts"]
    assert (
        hosts[0]["throughput_per_database"].value == pytest.approx(100)
        and "only tainted trials" in hosts[0]["throughput_per_database"].note
    )
    assert hosts[1]["cpu_used"].value is None and hosts[1]["cpu_used"].note == "no clean trial loaded a database here"


RATES = st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 1e6), min_size=2)


def test_rates_are_relative_to_the_mean_of_each_trial():
    trials = [{"a": 100.0, "b": 80.0}, {"a": 10.0, "b": 8.2}, {"a": 1.0, "b": 0.78}]
    result = imbalance(trials, "I/Os per second")
    assert result.value == pytest.approx(0.2) and result.n == 3 and "in I/Os per second" in result.method
    slow = slowest(trials, "I/Os per second")
    assert slow.note.startswith("host b") and slow.high < 1 and slow.value == pytest.approx(0.889, abs=0.001)


def test_a_difference_that_may_be_chance_is_said_so():
    assert "not shown" in slowest([{"a": 9.0, "b": 10.0}, {"a": 10.0, "b": 9.0}, {"a": 9.5, "b": 9.6}], "x").note


def test_of_many_equal_hosts_none_is_called_slow():
    """The least of sixteen is chosen by the same trials: by its own 95 % interval it is 'slower' in every third study."""
    rng = random.Random(1)
    equal = [[{f"h{n}": math.exp(rng.gauss(0, 0.03)) for n in range(16)} for _ in range(6)] for _ in range(200)]
    assert sum("not shown" not in slowest(trials, "x").note for trials in equal) <= 18  # 5 % are 10
    slow = [{name: rate * (0.8 if name == "h3" else 1) for name, rate in trial.items()} for trial in equal[0]]
    assert slowest(slow, "x").note == "host h3"


def test_the_interval_holds_for_all_hosts_together():
    """By hand: shares of the mean 0.89, 0.9 and 0.91; t is 7.649 for 1 - 0.05/3 and 2 degrees of freedom (4.303 for 0.95)."""
    result = slowest([{"a": 89.0, "b": 100.0, "c": 111.0}, {"a": 90.0, "b": 100.0, "c": 110.0}, {"a": 91.0, "b": 100.0, "c": 109.0}], "x")
    half = 7.649 * 0.01 / math.sqrt(3)
    assert (result.value, result.low, result.high) == pytest.approx((0.9, 0.9 - half, 0.9 + half), abs=1e-5)
    assert result.confidence == 0.95 and "all 3 hosts jointly" in result.method
    two = slowest([{"a": 89.0, "b": 111.0}, {"a": 90.0, "b": 110.0}, {"a": 91.0, "b": 109.0}], "x")
    assert two.high == pytest.approx(0.9 + 4.303 * 0.01 / math.sqrt(3), abs=1e-5) and "together" not in two.method


def test_nothing_is_said_of_nothing():
    for trials in ([], [{}], [{"a": 0.0, "b": 0.0}]):
        assert imbalance(trials, "x").value is None and slowest(trials, "x").value is None


@given(RATES)
def test_shares_of_the_mean_have_the_mean_one(rates):
    shares = relative_rates(rates)
    assert sum(shares.values()) / len(shares) == pytest.approx(1)
    assert 0 <= imbalance([rates], "x").value < 1
    assert slowest([rates], "x").value <= 1 + 1e-9
