"""Complete options of a hugepages run, and its trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import State
from pgherd.model.units import Duration
from pgherd.study.comparison import propose as comparison
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.comparison.request import BlocksRequest
from pgherd.study.option import option, redefined

NONE, THP = "none", "thp"
"""Names of the variants with ordinary pages and with transparent huge pages. The name of each other variant is its page size, such as
2MB."""


class HugepagesOptions(CompareOptions):
    """Complete options of a comparison of one server on several kinds of pages.

    ``counters_unavailable`` is the reason why the processor's counters cannot be read ('' if they can). ``page_sizes`` maps each variant
    with reserved pages to its page size in bytes.
    """

    counters_unavailable: str = ""
    page_sizes: dict[str, int] = Field(default_factory=dict)

    def of(self, name: str) -> dict[str, Any]:
        """Return the options of a variant's study."""
        return self.variant(name).options

    def reserved_pages(self, name: str) -> int:
        """Return the number of huge pages that are reserved for the variant's server."""
        size = self.page_sizes.get(self.variant(name).name, 0)
        return int(self.of(name).get("huge_page_bytes", 0)) // size if size else 0


class HugepagesRequest(BlocksRequest):
    """Options of ``pgherd hugepages`` as given on the command line or in a scenario."""

    LEFT_OUT: ClassVar[dict[str, str]] = {
        **BlocksRequest.LEFT_OUT,
        "huge_pages": "this study compares several kinds of pages; give them with page_sizes",
    }

    page_sizes: tuple[str, ...] = option(
        (), "none, 2MB, 1GB, thp; the first is the baseline.", metavar="SIZE,…", computed="all that exist", web=True
    )
    clients: int | None = redefined(BlocksRequest, "clients", None, computed="10")
    duration: Duration | None = redefined(BlocksRequest, "duration", Duration("8s"))
    start_state: State = redefined(BlocksRequest, "start_state", "warm", computed="restarted; fresh if the load writes")
    time_budget: Duration | None = redefined(BlocksRequest, "time_budget", None, computed="7m20s")


def propose(options: HugepagesOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the trials of the comparison, with the processor's TLB counters if it has them."""
    proposal = comparison.propose(options, results)
    if options.counters_unavailable:
        return proposal
    return proposal.model_copy(update={"trials": tuple(trial.model_copy(update={"counters": ("tlb",)}) for trial in proposal.trials)})
