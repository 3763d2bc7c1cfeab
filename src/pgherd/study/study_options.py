"""Base class of a study's complete options, with the questions that general parts put to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pgherd.model.base import Model


class StudyOptions(Model):
    """Complete options of a study. Those that hold the options of several variants, or use hosts in turn, override the methods."""

    def variant_options(self) -> Mapping[str, Model]:
        """Name → complete options of each variant; empty where there are none."""
        return {}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """A copy with these options of the variants, all of which are given."""
        return self

    @property
    def hosts_in_turn(self) -> tuple[str, ...]:
        """Hosts of a cluster on which blocks of trials run in turn."""
        return ()

    def on_hosts(self, names: tuple[str, ...]) -> Self:
        """A copy whose blocks of trials run on these hosts of a cluster in turn."""
        return self
