import pytest

from pgherd.metrics.balloon_manager import SAMPLER
from pgherd.metrics.sampler import GuestView, View
from pgherd.node.protocol import Source

SOURCE = Source("balloon_manager", "platform:balloon-manager", "qmp", "")


def test_the_managers_own_cpu_is_a_part_of_the_platform() -> None:
    assert list(SAMPLER.parse('{"cpu": 1.25}', SOURCE)) == [("platform:balloon-manager", {"cpu.usage": 1.25})]
    assert SAMPLER.sources(View(guests=[GuestView("a", 7, 2**20)])) == []


@pytest.mark.parametrize("raw", ["", "{}", "[]", '{"cpu": null}', '{"cpu": "much"}'])
def test_refuses_other_text(raw: str) -> None:
    with pytest.raises(ValueError):
        list(SAMPLER.parse(raw, SOURCE))
