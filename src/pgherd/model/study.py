"""What a study is: two pure functions over options and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeVar

from pydantic import ConfigDict, Field

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult

Options = TypeVar("Options", bound=Model, contravariant=True)


class Study(Protocol[Options]):
    """A question. The options are complete (host-dependent defaults already filled in), so both functions are pure.

    ``propose`` is called again after every proposal has run; the same options and results always give the same
    proposal, so that resume is replay. ``analyse`` never raises for missing or tainted results: it says so.
    """

    name: str
    options: type[Model]

    def propose(self, options: Options, results: Sequence[TrialResult]) -> Proposal:
        """Say which trials to run next, or stop with a reason."""
        ...

    def analyse(self, options: Options, results: Sequence[TrialResult]) -> Analysis:
        """Say what the results mean."""
        ...


SCHEMA: Final = "pgherd/scenario/1"


class Scenario(Model):
    """What a scenario file holds. ``options`` carries the same names as the study's command-line options, with
    underscores for dashes."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["pgherd/scenario/1"] = Field(SCHEMA, alias="schema")
    study: str = Field(description="the study's verb, such as density")
    title: str = ""
    experiment: str | None = Field(None, pattern=r"^E\d+$", description="the published experiment it follows")
    note: str = Field("", description="how it deviates from the published set-up, and why")
    options: dict[str, Any] = Field(default_factory=dict)
