"""Messages and reports of the tools that generate load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgherd.drivers import iperf3
from reports import MESSAGES, Message

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("row", MESSAGES, ids=lambda row: row.report)
def test_an_interruption_by_pgherd_is_no_error_in_any_wording(row: Message) -> None:
    """The report is that of iperf3 3.12. Later versions differ in the message."""
    report = json.loads((FIXTURES / "iperf3/3.12-interrupted.json").read_text())
    assert report["error"] == MESSAGES[0].text
    text = json.dumps(report | {"error": row.text})
    if row.right:
        assert iperf3.read_report({"stdout": text})["intervals"]
    else:
        with pytest.raises(ValueError, match="iperf3: "):
            iperf3.read_report({"stdout": text})
