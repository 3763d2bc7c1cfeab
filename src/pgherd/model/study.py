"""What a study is: two pure functions over options and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult

Options = TypeVar("Options", bound=Model, contravariant=True)


class RunnableStudy(Protocol[Options]):
    """A question. The options are complete (host-dependent defaults already filled in), so both functions are pure.

    ``propose`` is called again after every proposal has run; the same options and results always give the same
    proposal, so that resume is replay. ``analyse`` never raises for missing or tainted results: it says so.
    """

    @property
    def name(self) -> str:
        """The study's name, as on the command line."""
        ...

    @property
    def options(self) -> type[Model]:
        """Model of its complete options."""
        ...

    def propose(self, options: Options, results: Sequence[TrialResult]) -> Proposal:
        """Say which trials to run next, or stop with a reason."""
        ...

    def analyse(self, options: Options, results: Sequence[TrialResult]) -> Analysis:
        """Say what the results mean."""
        ...
