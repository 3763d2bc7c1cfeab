"""Interface of a study, and the scenario file that stores one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeVar

from pydantic import ConfigDict, Field

from pgherd.model.analysis import Analysis, Proposal
from pgherd.model.base import Model
from pgherd.model.result import TrialResult

Options = TypeVar("Options", bound=Model, contravariant=True)


class RunnableStudy(Protocol[Options]):
    """Study: two pure functions over complete options and results.

    Defaults that depend on the host are already filled in. ``propose`` runs again after each proposal has finished. The same
    options and results always give the same proposal, so that resume can replay a run. ``analyse`` never raises for missing or
    tainted results. It reports them.
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
        """Return the next trials, or the reason to stop."""
        ...

    def analyse(self, options: Options, results: Sequence[TrialResult]) -> Analysis:
        """Return the conclusions from the results."""
        ...


SCHEMA: Final = "pgherd/scenario/1"


class Scenario(Model):
    """Contents of a scenario file: a study with its options, so that a command line can be kept, shared and repeated.

    The keys of ``options`` are the study's command-line options, with underscores for dashes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["pgherd/scenario/1"] = Field(SCHEMA, alias="schema")
    study: str = Field(description="command of the study, such as density")
    title: str = ""
    experiment: str | None = Field(None, pattern=r"^E\d+$", description="published experiment that it reproduces")
    note: str = Field("", description="deviations from the published set-up, with reasons")
    options: dict[str, Any] = Field(default_factory=dict)
