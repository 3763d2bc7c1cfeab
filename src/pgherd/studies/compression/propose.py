"""Trials of a compression run: one per kind of data and form."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.compression.options import CompressionOptions, DataKind, deployment
from pgherd.study import trial_schedule


def propose(options: CompressionOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the kinds without a result.

    Every form reads the same segments, so one trial each is enough. Failed trials are not repeated.
    """
    trials = tuple(_trial(options, kind, form) for kind in options.data for form in options.forms)
    return trial_schedule.propose_once(trials, results, options.time_budget, "every kind of data has been compressed in every form")


def _trial(options: CompressionOptions, kind: DataKind, form: str) -> Trial:
    request = {
        "codecs": ",".join(options.codecs),
        "blocks": ",".join(map(str, options.block_sizes)),
        "samples": str(options.segments),
        "seed": str(options.seed),
        "form": form,
    }
    request |= {name: value for name in ("dsn", "directory") if (value := getattr(kind, name)) is not None}
    request |= {"filesystem": options.filesystem} if options.filesystem else {}
    return Trial(
        point={"data": kind.name, "form": form},
        deployment=deployment(options, kind),
        state="fresh",
        phases=(),
        probe="compression",
        probe_options=request,
    )
