"""Which trials a compression run consists of: one per kind of data and form. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.compression.options import CompressionOptions, Source, deployment


def propose(options: CompressionOptions, results: Sequence[TrialResult]) -> Proposal:
    """The kinds that have no result yet. The same segments are read for every form, so one trial each will do; one that
    failed is not tried again."""
    done = {result.trial.key() for result in results}
    trials = tuple(_trial(options, source, form) for source in options.sources for form in options.forms)
    missing = tuple(trial for trial in trials if trial.key() not in done)
    if not missing:
        return Proposal(stop="every kind of data has been compressed in every form", worst_case=len(trials))
    return Proposal(trials=missing, worst_case=len(trials))


def _trial(options: CompressionOptions, source: Source, form: str) -> Trial:
    asked = {
        "codecs": ",".join(options.codecs),
        "blocks": ",".join(map(str, options.blocks)),
        "samples": str(options.samples),
        "seed": str(options.seed),
        "form": form,
    }
    asked |= {name: value for name in ("dsn", "directory") if (value := getattr(source, name)) is not None}
    asked |= {"filesystem": options.filesystem} if options.filesystem else {}
    return Trial(
        point={"kind": source.name, "form": form},
        deployment=deployment(options, source),
        state="fresh",
        phases=(),
        probe="compression",
        asked=asked,
    )
