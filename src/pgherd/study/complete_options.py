"""Base class of a study's complete options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pgherd.model.base import Model


class StudyOptions(Model):
    """Base class of a study's complete options. Studies with several variants or hosts in turn override the methods."""

    def variant_options(self) -> Mapping[str, Model]:
        """Return the complete options of each variant, by name. Empty without variants."""
        return {}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """Return a copy with these options of all variants."""
        return self

    @property
    def hosts_in_turn(self) -> tuple[str, ...]:
        """Hosts of a cluster that blocks of trials run on in turn."""
        return ()

    def on_hosts(self, names: tuple[str, ...]) -> Self:
        """Return a copy whose blocks of trials run on these hosts in turn."""
        return self
