import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from pgherd.model.thresholds import Thresholds

CHECKS = Path(__file__).parents[2] / "docs" / "reference" / "checks.md"


def test_the_documented_table_is_the_table_in_force():
    rows = re.findall(r"^\| ?`(\w+)` ?\| ?([\d.]+) ?\| ?(.+?) ?\|$", CHECKS.read_text(), flags=re.M)
    if not rows:
        pytest.skip("the generated block of docs/reference/checks.md is empty")
    documented = {name: (float(value), meaning) for name, value, meaning in rows}
    assert documented == {name: (field.default, field.description) for name, field in Thresholds.model_fields.items()}


def test_a_share_above_one_is_refused():
    with pytest.raises(ValidationError):
        Thresholds(overlap=1.5)
