"""Made-up trials of links of which window, round trip time and bandwidth are known."""

from __future__ import annotations

import pytest

from pgherd.model.analysis import Check
from pgherd.model.deployment import Link
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.network.options import NetworkOptions
from pgherd.studies.network.study import STUDY


@pytest.fixture
def options():
    def make(**changes):
        return NetworkOptions(**{"links": (Link(name="db2", host="db2"),), "streams": (1, 2, 4, 8), "host_cores": 2} | changes)

    return make


@pytest.fixture
def results(options):
    """All planned trials: each stream makes ``each`` Gbit/s until the link's ``full`` is reached, repeats differ by ``spread``."""

    def make(asked=None, each=3.0, full=20.0, spread=0.01, failed=(), tainted=(), cpu=0.3, rtt=True):
        asked = asked or options()
        collected = []
        for number, trial in enumerate(STUDY.propose(asked, []).trials, start=1):
            streams = trial.point["streams"]
            speed = 1e6 if streams == 0 else 1e9 * min(streams * each, full) * (1 + spread * (trial.repeat - 1))
            values = {"bits_per_second": speed}
            if rtt:
                values |= {"rtt_ms": 0.5 if streams == 0 else 0.5 + streams, "retransmits_per_second": float(streams)}
            target = TargetResult(
                target=trial.point["link"],
                driver="iperf3",
                transactions=1,
                throughput=speed / 8,
                first=0,
                last=1,
                client_cpu=cpu(streams) if callable(cpu) else cpu,
                values=values,
            )
            verdicts = [Check(name="steal", kind="noise", result="fail" if streams in tainted else "pass", observed="", expected="")]
            error = "no route" if streams in failed else None
            phases = [] if error else [PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[target])]
            collected.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, phases=phases, checks=verdicts, error=error))
        return collected

    return make
