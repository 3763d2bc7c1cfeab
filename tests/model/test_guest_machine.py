from __future__ import annotations

from pgherd.model.deployment import Container
from pgherd.model.guest_machine import GuestMachine


def test_what_is_not_asked_for_is_not_written_and_comes_back():
    for one, written in ((GuestMachine(), {}), (GuestMachine(merge=True, huge_page=2**21), {"huge_page": 2**21, "merge": True})):
        container = Container(name="a", runtime="vm", guest=one)
        assert container.model_dump(mode="json")["guest"] == written
        assert Container.model_validate_json(container.model_dump_json()) == container
