import pytest

from pgherd.metrics.pressure import SAMPLER
from pgherd.metrics.sampler import ContainerView, View
from pgherd.node.protocol import Source


def test_reads_seconds(parsed) -> None:
    assert parsed("pressure", "proc-pressure-cpu", "cpu") == {"host": {"psi.cpu.some": 239.865048}}
    assert parsed("pressure", "proc-pressure-io", "io") == {"host": {"psi.io.some": 24.820028, "psi.io.full": 21.241561}}
    group = parsed("pressure", "v2-memory.pressure", "memory", "container:a")
    assert group == {"container:a": {"psi.memory.some": 0, "psi.memory.full": 0}}


def test_reads_the_v2_group_only() -> None:
    view = View([ContainerView("a", {"v2": "/g/a", "cpu": "/c/a"}), ContainerView("b", {"cpu": "/c/b"})])
    found = SAMPLER.sources(view)
    assert [source.where for source in found if source.entity == "host"] == [f"/proc/pressure/{x}" for x in ("cpu", "memory", "io")]
    assert [source.where for source in found if source.entity == "container:a"] == [f"/g/a/{x}.pressure" for x in ("cpu", "memory", "io")]
    assert len(found) == 6


def test_reads_the_group_around_all_containers() -> None:
    found = SAMPLER.sources(View([ContainerView("a", {"v2": "/g/a"})], budget={"v2": "/g", "memory": "/m"}))
    assert [source.where for source in found if source.entity == "budget"] == [f"/g/{x}.pressure" for x in ("cpu", "memory", "io")]


def test_refuses_other_text() -> None:
    with pytest.raises(ValueError, match="no pressure lines"):
        list(SAMPLER.parse("cpu 1 2 3", Source("pressure", "host", "file", "/x", tag="cpu")))
