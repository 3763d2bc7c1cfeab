import itertools
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from pgherd.model.analysis import Check, Thresholds


def verdict(result, severity="taint"):
    return Check(name="steal", kind="noise", result=result, observed="3 %", expected="at most 2 %", severity=severity)


def test_of_several_verdicts_the_gravest_is_what_failed_and_taints():
    from_worst = [verdict(result, severity) for result in ("fail", "unknown", "pass") for severity in ("taint", "warn")]
    for order in itertools.permutations(from_worst):
        assert sorted(order, key=lambda item: item.gravity, reverse=True) == from_worst


def test_only_what_failed_and_is_not_only_said_taints():
    all_kinds = [verdict(result, severity) for result in ("fail", "unknown", "pass") for severity in ("taint", "warn")]
    assert [all_kind for all_kind in all_kinds if all_kind.taints] == [verdict("fail")]


CHECKS = Path(__file__).parents[2] / "docs" / "reference" / "checks.md"


def test_the_documented_table_is_the_table_in_force():
    rows = re.findall(r"^\| ?`(\w+)` ?\| ?([\d.]+) ?\| ?(.+?) ?\|$", CHECKS.read_text(), flags=re.M)
    if not rows:
        pytest.skip("the generated block of docs/reference/checks.md is empty")
    documented = {name: (float(value), meaning) for name, value, meaning in rows}
    assert documented == {name: (field.default, field.description) for name, field in Thresholds.model_fields.items()}


def test_a_share_above_one_is_refused():
    with pytest.raises(ValidationError):
        Thresholds(min_overlap=1.5)
