from __future__ import annotations

import itertools

from pgherd.model.finding import Verdict


def verdict(result, severity="taint"):
    return Verdict(check="steal", kind="noise", result=result, observed="3 %", wanted="at most 2 %", severity=severity)


def test_of_several_verdicts_the_gravest_is_what_failed_and_taints():
    from_worst = [verdict(result, severity) for result in ("fail", "unknown", "pass") for severity in ("taint", "warn")]
    for order in itertools.permutations(from_worst):
        assert sorted(order, key=lambda one: one.gravity, reverse=True) == from_worst


def test_only_what_failed_and_is_not_only_said_taints():
    all_kinds = [verdict(result, severity) for result in ("fail", "unknown", "pass") for severity in ("taint", "warn")]
    assert [one for one in all_kinds if one.taints] == [verdict("fail")]
