import pytest

from pgherd.host.kernel_files import TICKS
from pgherd.metrics.kernel_io import SAMPLER
from pgherd.metrics.sampler import SamplingView, ServerView


def test_the_time_of_all_names_is_one_counter() -> None:
    (source,) = SAMPLER.sources(SamplingView(servers=[ServerView("a/pg", "host=/s", 18, 10)]))
    assert SAMPLER.sources(SamplingView()) == [], "a guest's own threads belong to its container"
    assert (source.entity, source.kind) == ("platform:kernel-io", "kernel-threads")
    assert list(SAMPLER.parse("dio/vda 2\nkblockd 40\nodd name 8", source)) == [("platform:kernel-io", {"cpu.usage": 50 / TICKS})]
    assert list(SAMPLER.parse("", source)) == [("platform:kernel-io", {"cpu.usage": 0})]
    with pytest.raises(ValueError, match="is not a count"):
        list(SAMPLER.parse("no number", source))
