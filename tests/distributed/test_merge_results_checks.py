import pytest

from pgherd.cluster.interfaces import HostClockOffset
from pgherd.distributed import merge_results as host_verdicts
from pgherd.distributed.clock_alignment import Clocks, CommonPhase
from pgherd.distributed.merge_results import ClusterObservations
from pgherd.model.analysis import Check, Thresholds
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import PhaseResult, TargetResult
from pgherd.model.trial import Trial

LIMITS = Thresholds()


def clocks(**uncertainty):
    result = Clocks()
    result.add({h: HostClockOffset(seconds=0.5, uncertainty=u, at=0.0, round_trip=0.001, n=16) for h, u in uncertainty.items()})
    return result


def phase(overlap=0.99):
    return PhaseResult(phase="steady", start=0, end=10, overlap=overlap, targets=[])


def seen(skew=0.01, lost=None, **uncertainty):
    window = CommonPhase(start=0, end=10, began={"a": 0.0, "b": skew}, skew=skew, overlap=0.99)
    return ClusterObservations([window], clocks(**(uncertainty or {"a": 0.001, "b": 0.002})), lost or {})


def verdict(result, check="steal", severity="taint"):
    why = "" if result == "pass" else "because"
    return Check(name=check, kind="noise", result=result, observed="3 %", expected="≤ 2 %", reason=why, severity=severity)


def named(result):
    return {item.name: item for item in result}


def test_the_worst_host_decides_and_is_named():
    parts = {"a": [verdict("pass")], "b": [verdict("unknown")], "c": [verdict("fail")], "d": [verdict("fail")]}
    steal = named(host_verdicts.together(parts, [phase()], seen(), LIMITS))["steal"]
    assert (steal.result, steal.observed, steal.reason) == ("fail", "c: 3 %", "host c: because; so do d")
    del parts["c"], parts["d"]
    steal = named(host_verdicts.together(parts, [phase()], seen(), LIMITS))["steal"]
    assert (steal.result, steal.reason) == ("unknown", "host b: because")
    steal = named(host_verdicts.together({"a": [verdict("pass")], "b": [verdict("pass")]}, [phase()], seen(), LIMITS))["steal"]
    assert (steal.result, steal.observed, steal.reason) == ("pass", "a: 3 %; 1 other host passed too", "")


def test_a_taint_is_worse_than_what_is_only_said():
    parts = {"a": [verdict("fail", severity="warn")], "b": [verdict("fail")]}
    assert named(host_verdicts.together(parts, [phase()], seen(), LIMITS))["steal"].severity == "taint"


def test_the_phases_that_failed_on_any_host_are_named():
    def failed(*phases):
        return [verdict("fail").model_copy(update={"failed_phases": phases})]

    def steal(**parts):
        return named(host_verdicts.together(parts, [phase()], seen(), LIMITS))["steal"].failed_phases

    assert steal(a=failed("w1", "w2"), b=failed("w2", "w5"), c=[verdict("pass")]) == ("w1", "w2", "w5")
    assert steal(a=failed("w1"), b=failed()) == (), "b failed as a whole"


def test_overlap_is_judged_over_all_hosts():
    parts = {"a": [verdict("pass", "overlap")], "b": [verdict("pass", "overlap")]}
    overlap = named(host_verdicts.together(parts, [phase(0.96), phase(0.90)], seen(), LIMITS))["overlap"]
    assert overlap.result == "fail" and overlap.observed.startswith(
        "90.0% of the period (steady), over all hosts, with their clocks known to 2 ms"
    )
    assert overlap.failed_phases == ("steady",)
    assert named(host_verdicts.together(parts, [phase(0.90)], seen(), LIMITS))["overlap"].failed_phases == (), (
        "the only one is the whole trial"
    )


def switched(name, skew, *firsts):
    targets = [
        TargetResult(target=f"{host}/db/pg/bench", driver="pgbench", transactions=9, throughput=1, first=first, last=20)
        for host, first in zip("ab", firsts, strict=False)
    ]
    return PhaseResult(phase=name, start=2, end=20, overlap=1, targets=targets, skew=skew)


def test_a_switch_is_judged_over_all_hosts_and_once():
    """Each host saw its own targets switch together; how far apart the hosts' were shows only here."""
    parts = {"a": [verdict("pass", "switch-skew")], "b": [verdict("pass", "switch-skew")]}
    together = [switched("w1", 0.02, 1.0, 1.02), switched("w2", 0.15, 1.0, 1.15)]
    checks = [item for item in host_verdicts.together(parts, together, seen(), LIMITS) if item.name == "switch-skew"]
    assert [(element.result, element.severity, element.failed_phases) for element in checks] == [("fail", "warn", ("w2",))]
    assert checks[0].observed == (
        "150 ms (w2), all before the measured period, b/db/pg/bench the last, over all hosts, with their clocks known to 2 ms"
    )
    counted = [switched("w1", 0.02, 1.0, 1.02), switched("w2", 1.0, 1.0, 2.0)]
    assert named(host_verdicts.together(parts, counted, seen(), LIMITS))["switch-skew"].severity == "taint"
    good = named(host_verdicts.together(parts, [switched("w1", 0.02, 1.0, 1.02)] * 2, seen(), LIMITS))["switch-skew"]
    assert good.result == "pass" and good.observed.startswith("20 ms (w1)")


def test_a_switch_is_judged_where_one_host_carries_all():
    observations = ClusterObservations([], clocks(a=0.001))
    phases = [switched("w1", 0.02, 1.0), switched("w2", 0.3, 1.0)]
    outcome = named(host_verdicts.together({"a": [verdict("fail", "switch-skew")]}, phases, observations, LIMITS))
    assert outcome["switch-skew"].result == "fail" and "300 ms (w2)" in outcome["switch-skew"].observed
    alone = [switched("w1", None, 1.0), switched("w2", None, 1.0)]
    assert named(host_verdicts.together({"a": []}, alone, observations, LIMITS))["switch-skew"].observed == "a single target"
    assert "switch-skew" not in named(host_verdicts.together({"a": []}, phases[:1], observations, LIMITS)), "it switches to nothing"


def test_clocks_that_are_not_known_well_enough_taint_a_trial():
    parts = {"a": [verdict("pass")], "b": [verdict("pass")]}
    outcome = named(host_verdicts.together(parts, [phase()], seen(a=0.001, b=0.03), LIMITS))["clock-offset"]
    assert outcome.result == "fail" and outcome.observed.startswith("b: +500.00 ms ± 30 ms")
    outcome = named(host_verdicts.together(parts, [phase()], seen(a=0.001), LIMITS))["clock-offset"]
    assert outcome.result == "unknown" and "not measured on b" in outcome.observed


def test_hosts_that_begin_apart_taint_a_trial():
    parts = {"a": [verdict("pass")], "b": [verdict("pass")]}
    assert named(host_verdicts.together(parts, [phase()], seen(skew=0.02), LIMITS))["start-skew"].result == "pass"
    outcome = named(host_verdicts.together(parts, [phase()], seen(skew=0.3), LIMITS))["start-skew"]
    assert outcome.result == "fail" and "b was the last" in outcome.observed


def test_a_trial_without_a_host_is_tainted():
    parts = {"a": [verdict("pass")], "b": [verdict("pass")]}
    assert named(host_verdicts.together(parts, [phase()], seen(), LIMITS))["all-hosts-present"].result == "pass"
    outcome = named(host_verdicts.together(parts, [phase()], seen(lost={"c": "no sign of life"}), LIMITS))["all-hosts-present"]
    assert outcome.result == "fail" and outcome.observed == "2 of 3; missing c" and "no sign of life" in outcome.reason


def test_one_host_is_not_compared_with_itself():
    result = named(host_verdicts.together({"a": [verdict("pass")]}, [phase()], ClusterObservations([], clocks(a=0.001)), LIMITS))
    assert set(result) == {"steal", "overlap", "all-hosts-present"}


FACTS = HostFacts(hostname="a", kernel="6", cores=2, logical_cpus=2, memory=2**33)
IDLE = {"cpu.user": 0.05, "cpu.idle": 1.95, "cpu.online": 2.0, "cpu.steal": 0.0}
BUSY = {"cpu.user": 1.99, "cpu.idle": 0.01, "cpu.online": 2.0, "cpu.steal": 0.0}


def part(*phases):
    container = {"name": "db1", "vcpus": 2, "cpu_mode": "quota", "servers": [{"bin": "/pg", "version": "18.6"}]}
    loads = [{"a/db1/pg/bench": {}} if phase else {} for phase in phases]
    return Trial.model_validate(
        {
            "point": {"databases": 1},
            "deployment": {"hosts": [{"name": "a", "containers": [container]}]},
            "phases": [{"name": f"p{i}", "loads": load, "seconds": 10} for i, load in enumerate(loads)],
            "validity_checks": ["cpu-bound", "not-client-bound"],
        }
    )


def played(*phases):
    collected = []
    for i, item in enumerate(phases):
        target = TargetResult(target="a/db1/pg/bench", driver="pgbench", transactions=9, throughput=1, first=0, last=10, client_cpu=0.1)
        metrics = {"host": BUSY if item else IDLE, "container:db1": {"cpu.usage": 1.97 if item else 0.0}}
        collected.append(PhaseResult(phase=f"p{i}", start=0, end=10, overlap=1, targets=[target] if item else [], metrics=metrics))
    return collected


def of_part(*phases):
    return named(host_verdicts.of_part(part(*phases), played(*phases), FACTS, LIMITS, 0.0))


def test_a_host_without_load_is_judged_for_itself_alone():
    outcome = of_part(False)
    assert set(outcome) == {"on-schedule", "steal", "background-cpu", "clock-step"}
    assert outcome["background-cpu"].result == "pass"


@pytest.mark.parametrize("phases", [(True,), (True, True)])
def test_a_host_under_load_is_judged_as_any(phases):
    outcome = of_part(*phases)
    assert outcome["cpu-bound"].result == "pass" and {"overlap", "no-failed-transactions", "no-autovacuum", "not-client-bound"} <= set(
        outcome
    )


def test_phases_without_load_say_nothing_of_intents():
    outcome = of_part(True, False)
    assert outcome["cpu-bound"].result == "pass", "the idle phase would fail it"
    assert {"overlap", "no-failed-transactions", "steal", "clock-step"} <= set(outcome)
