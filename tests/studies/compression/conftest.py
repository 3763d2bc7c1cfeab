"""Made-up readings of the probe: segments of 1 MB with a ratio that is known."""

from __future__ import annotations

import pytest

from pgherd.model.result import TrialResult
from pgherd.studies.compression.options import SEGMENT, CompressionOptions, DataKind
from pgherd.studies.compression.study import STUDY

SOURCES = tuple(DataKind(name=name, workload=name, scale=1) for name in ("pgbench", "orders", "realistic"))


@pytest.fixture
def options():
    def make(**changes):
        return CompressionOptions(**{"data": SOURCES, "codecs": ("lz4", "zstd-3"), "pg_bin": "/pg/bin", "pg_version": "18.6"} | changes)

    return make


@pytest.fixture
def results(options):
    """One result per trial; ``ratios`` by kind, encrypted data always 1; ``failed`` are kinds that failed."""

    def make(asked=None, ratios=None, failed=(), segments=8, of=100):
        asked = asked or options()
        ratios = {"pgbench": 8.0, "orders": 1.5, "realistic": 1.8} | (ratios or {})
        collected = []
        for number, trial in enumerate(STUDY.propose(asked, []).trials, start=1):
            kind, form = trial.point["data"], trial.point["form"]
            ratio = 1.0 if form == "encrypted" else ratios[kind]
            probe = {"size_bytes/public.a/b": of * SEGMENT, "segments/public.a/b": of}
            for segment in range(segments):
                probe[f"raw_bytes/{segment}/public.a/b"] = SEGMENT
                wobble = 1 + 0.01 * (-1) ** segment if ratio > 1 else 1.0
                for codec in asked.codecs:
                    for block in asked.block_sizes:
                        probe[f"compressed_bytes/{codec}/{block}/{segment}/public.a/b"] = SEGMENT / ratio * wobble
                        probe[f"stored_bytes/{codec}/{block}/{segment}/public.a/b"] = SEGMENT if block <= 4096 else SEGMENT / ratio * wobble
            error = "no room" if kind in failed else None
            collected.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, probe={} if error else probe, error=error))
        return collected

    return make
