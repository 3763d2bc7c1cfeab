"""What a guest's hypervisor does for it beside giving it vCPUs and memory."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from pgherd.model.base import Model


class GuestMachine(Model):
    """Choices for a container that is a guest; each is off unless it is asked for.

    ``pinned``: each vCPU runs on a CPU of the host of its own, in turn. ``huge_page``: the guest's memory lies on reserved huge pages of so
    many bytes, which no control group counts, and which cannot be given back. ``merge``: the host may merge pages that are equal (KSM).
    """

    pinned: bool = False
    huge_page: int | None = Field(None, gt=0)
    merge: bool = False

    @model_serializer(mode="wrap")
    def _asked(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what is asked for: a container that is no guest asks for nothing, and so differs in nothing from a guest that does not."""
        return {name: value for name, value in dump(self).items() if value}
