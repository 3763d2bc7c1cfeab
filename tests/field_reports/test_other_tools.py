"""Messages and reports of the tools that generate load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgherd.drivers import fio, iperf3
from pgherd.drivers.driver import MeasuredWindow
from pgherd.model.load import Load
from pgherd.node.local import LocalNode
from pgherd.runner.execute import perf_counters
from reports import FIO_MESSAGES, MESSAGES, PERF_REFUSALS, RETRANSMITS, Message, Retransmits, Words

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


@pytest.mark.parametrize("row", FIO_MESSAGES, ids=lambda row: row.report)
def test_an_interruption_of_fio_hides_no_error(row: Words) -> None:
    assert fio.last_messages({"stdout": "", "stderr": row.text}) == row.right


@pytest.mark.parametrize("row", PERF_REFUSALS, ids=lambda row: row.report)
def test_a_refusal_of_perf_is_understood_in_any_wording(row: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "message").write_text(row.text)
    program = tmp_path / "perf"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/message >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert row.right in (perf_counters._refusal(LocalNode(), ["dTLB-loads"]) or "")


@pytest.mark.parametrize("row", RETRANSMITS, ids=lambda row: row.report)
def test_impossible_retransmits_are_unknown(row: Retransmits) -> None:
    report = json.loads((FIXTURES / "iperf3/3.12-trickle.json").read_text())
    for interval in report["intervals"]:
        interval["sum"]["retransmits"] = row.count
    first = report["start"]["timestamp"]["timesecs"]
    result = iperf3.DRIVER.result(
        Load(driver="iperf3"), {"stdout": json.dumps(report)}, first, MeasuredWindow(first, first + 2, first + 3), "t"
    )
    assert result.values.get("retransmits_per_second") == (None if row.right is None else pytest.approx(row.right, rel=0.01))
