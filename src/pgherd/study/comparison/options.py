"""Complete options of a comparison: its variants, the number of blocks and the stopping rule. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pgherd.model.analysis import Thresholds
from pgherd.model.base import Model
from pgherd.study.shared_options import StudyOptions
from pgherd.study.study import study_of

AA_SUFFIX = " (A/A)"
"""Suffix of the name of the baseline's second trials in each block."""
ALL_VARIANTS = "all-interleaved"
"""Variant in the point of a trial that loads all variants in time slices. No variant can have this name."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$"

VariantName = Annotated[str, Field(pattern=NAME_PATTERN)]


class Variant(Model):
    """Variant of a comparison: a prepared study. ``options`` holds the complete options of that study."""

    name: VariantName
    study: str
    options: dict[str, Any]


class CompareOptions(StudyOptions):
    """Complete options of a comparison.

    Attributes:
        variants: the variants.
        baseline: name of the variant that all others are compared with.
        metric: primary metric, which decides. None: throughput, or the first usable metric without throughput.
        max_blocks: maximum number of used blocks.
        precision: half width of the interval at which the comparison may stop, as a share (0.02 is 2 %).
        equivalence_margin: differences up to this share count as equivalent.
        max_reruns: maximum number of reruns of tainted or failed blocks.
        compare_findings: compare the findings of the variants' study too.
        interleave: by trials, or in time slices: the servers of all variants then run simultaneously, with a second server of the baseline
            for the A/A pair (pgherd.study.comparison.variants).
        defaults: defaults that differ between the variants' installations: value by variant, by name.
    """

    variants: tuple[Variant, ...] = Field(min_length=2)
    baseline: str
    metric: str | None = None
    max_blocks: int = Field(14, ge=1)
    precision: float | None = Field(None, gt=0)
    equivalence_margin: float = Field(0.02, gt=0)
    time_budget: float = Field(260.0, gt=0)
    max_reruns: int = Field(6, ge=0)
    compare_findings: bool = False
    hosts: tuple[str, ...] = Field((), description="hosts of a cluster on which blocks take turns; none: they run where pgherd does")
    interleave: Literal["slices", "trials"] = "trials"
    defaults: dict[str, dict[str, str]] = Field(default_factory=dict)
    seed: int = 1
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' checks")

    @model_validator(mode="after")
    def _one_baseline(self) -> CompareOptions:
        names = [variant.name for variant in self.variants]
        if len(set(names)) < len(names):
            raise ValueError(f"names of variants must be unique: {', '.join(names)}")
        if ALL_VARIANTS in names:
            raise ValueError(f"'{ALL_VARIANTS}' names a trial of all variants; give the variant another name")
        if self.baseline not in names:
            raise ValueError(f"the baseline '{self.baseline}' is not among the variants {', '.join(names)}")
        return self

    def variant_options(self) -> Mapping[str, Model]:
        """Return the complete options of each variant's study, by name."""
        return {variant.name: study_of(variant.study).options.model_validate(variant.options) for variant in self.variants}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """Return a copy with these options of the variants."""
        variants = tuple(variant.model_copy(update={"options": options[variant.name].model_dump(mode="json")}) for variant in self.variants)
        return self.model_copy(update={"variants": variants})

    @property
    def hosts_in_turn(self) -> tuple[str, ...]:
        """Hosts of a cluster that blocks run on in turn."""
        return self.hosts

    def on_hosts(self, names: tuple[str, ...]) -> Self:
        """Return a copy whose blocks run on these hosts in turn."""
        return self.model_copy(update={"hosts": names})

    @property
    def in_slices(self) -> bool:
        """True if the variants are interleaved in time slices of a trial."""
        return self.interleave == "slices"

    @property
    def other_variants(self) -> tuple[str, ...]:
        """Names of all variants except the baseline."""
        return tuple(variant.name for variant in self.variants if variant.name != self.baseline)

    @property
    def aa_variant(self) -> str:
        """Name of the baseline's second trials in a block. Both together are the A/A pair."""
        return self.baseline + AA_SUFFIX

    @property
    def block_variants(self) -> tuple[str, ...]:
        """All names in a block: the baseline, its second trials, and the other variants."""
        return (self.baseline, self.aa_variant, *self.other_variants)

    def variant(self, name: str) -> Variant:
        """Return the variant of a name in a block."""
        variant_name = self.baseline if name == self.aa_variant else name
        return next(variant for variant in self.variants if variant.name == variant_name)
