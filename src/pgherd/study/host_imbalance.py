"""How evenly the hosts of a cluster did the same work, and which was the slowest. Pure.

Hosts are compared within each trial, so that trials of all kinds count alike: what they have in common is how the hosts stand to each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Finding
from pgherd.study.findings import as_finding, missing

NO_CLEAN_TRIAL = "no clean trial loaded every host"
CONFIDENCE = 0.95


def relative_rates(rates: Mapping[str, float]) -> dict[str, float]:
    """Each host's rate in one trial over the hosts' mean; empty where nothing was done."""
    mean = sum(rates.values()) / len(rates) if rates else 0.0
    return {host: rate / mean for host, rate in rates.items()} if mean > 0 else {}


def imbalance(trials: Sequence[Mapping[str, float]], what: str) -> Finding:
    """1 − slowest ÷ fastest host. ``trials``: of each that loaded every host, host → rate; ``what`` the rate is, in words."""
    method = f"1 − slowest host ÷ fastest host, in {what}; mean over the trials that loaded every host"
    values = [1 - min(rates.values()) / max(rates.values()) for rates in trials if rates and max(rates.values()) > 0]
    if not values:
        return missing("ratio", NO_CLEAN_TRIAL, method=method)
    return as_finding(mean_interval(values), "ratio", "hosts that are alike differ by chance too: it is never quite 0", method=method)


def slowest(trials: Sequence[Mapping[str, float]], what: str) -> Finding:
    """The host whose rate over the hosts' mean is least, named in the note. Arguments as of ``imbalance``.

    Which host that is the same trials say: of many equal hosts one is always far below the mean by chance, and an interval of that host
    alone would show it. So the interval is one of those that hold for all hosts together (Bonferroni; two hosts' shares mirror each other).
    """
    method = f"{what} of the slowest host ÷ the hosts' mean"
    shares: dict[str, list[float]] = {}
    for rates in trials:
        for host, share in relative_rates(rates).items():
            shares.setdefault(host, []).append(share)
    if not shares:
        return missing("ratio", NO_CLEAN_TRIAL, method=method)
    host = min(shares, key=lambda name: sum(shares[name]) / len(shares[name]))
    together = len(shares) if len(shares) > 2 else 1
    if together > 1:
        method += f"; its interval is one of those that hold for all {together} hosts together (Bonferroni)"
    estimate = mean_interval(shares[host], 1 - (1 - CONFIDENCE) / together)
    if estimate.confidence is not None:
        estimate = replace(estimate, confidence=CONFIDENCE)
    sure = estimate.high is not None and estimate.high < 1
    note = f"host {host}" + ("" if sure else "; not shown to be slower than the others")
    return as_finding(estimate, "ratio", note, method=method)
