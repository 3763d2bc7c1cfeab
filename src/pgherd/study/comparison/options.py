"""The complete options of a comparison: its arms, how they are measured in blocks, and when it may stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from pgherd.model.base import Model
from pgherd.model.finding import Thresholds
from pgherd.study.registry import study_of
from pgherd.study.study import StudyOptions

AGAIN_SUFFIX = " again"
"""Ends the name under which the baseline stands in each block a second time."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$"

VariantName = Annotated[str, Field(pattern=NAME_PATTERN)]


class Variant(Model):
    """One of the things compared: a prepared study. ``options`` are that study's own complete options."""

    name: VariantName
    study: str
    options: dict[str, Any]


class CompareOptions(StudyOptions):
    """Everything that a comparison depends on.

    ``baseline`` names the arm that all others are held against. ``metric`` is the one that decides; None: throughput, or what
    there is in its place. ``most`` bounds the blocks that count; a block with a tainted or failed trial is run again,
    ``max_reruns`` times in all. ``precision`` and ``equivalence`` are shares (0.02 is 2 %). ``own`` says whether the arms'
    own findings are compared too. ``side_by_side``: the servers of all arms, and one for the A/A pair, are up at once
    (pgherd.study.comparison.variants). ``defaults`` is what differs between the arms' installations by itself: name → arm → value.
    """

    arms: tuple[Variant, ...] = Field(min_length=2)
    baseline: str
    metric: str | None = None
    most: int = Field(14, ge=1)
    precision: float | None = Field(None, gt=0)
    equivalence: float = Field(0.02, gt=0)
    budget_seconds: float = Field(260.0, gt=0)
    max_reruns: int = Field(6, ge=0)
    own: bool = False
    hosts: tuple[str, ...] = Field((), description="hosts of a cluster on which blocks take turns; none: they run where pgherd does")
    side_by_side: bool = False
    defaults: dict[str, dict[str, str]] = Field(default_factory=dict)
    seed: int = 1
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' verdicts")

    @model_validator(mode="after")
    def _one_baseline(self) -> CompareOptions:
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"the names of arms must differ, but they are {', '.join(names)}")
        if self.baseline not in names:
            raise ValueError(f"the baseline '{self.baseline}' is none of the arms {', '.join(names)}")
        return self

    def variant_options(self) -> Mapping[str, Model]:
        """Name → complete options of each arm's study."""
        return {arm.name: study_of(arm.study).options.model_validate(arm.options) for arm in self.arms}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """A copy with these options of the arms."""
        arms = tuple(arm.model_copy(update={"options": options[arm.name].model_dump(mode="json")}) for arm in self.arms)
        return self.model_copy(update={"arms": arms})

    @property
    def hosts_in_turn(self) -> tuple[str, ...]:
        """Hosts of a cluster on which blocks run in turn."""
        return self.hosts

    def on_hosts(self, names: tuple[str, ...]) -> Self:
        """A copy whose blocks run on these hosts in turn."""
        return self.model_copy(update={"hosts": names})

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of all arms but the baseline."""
        return tuple(arm.name for arm in self.arms if arm.name != self.baseline)

    @property
    def again(self) -> str:
        """The baseline's name where it stands in a block the second time: with the first it is the A/A pair."""
        return self.baseline + AGAIN_SUFFIX

    @property
    def sides(self) -> tuple[str, ...]:
        """All names that a block holds: the baseline, the same again, the variants."""
        return (self.baseline, self.again, *self.variants)

    def arm(self, side: str) -> Variant:
        """The arm of a name that stands in a block."""
        name = self.baseline if side == self.again else side
        return next(arm for arm in self.arms if arm.name == name)
