from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.host.journal import Journal
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.runtimes.choice import choose

FACTS = HostFacts(hostname="h", kernel="k", cores=4, logical_cpus=4, memory=1 << 34)


@pytest.fixture
def chosen(tmp_path: Path, fake):
    def choice(requested: str | None, *, able: bool):
        node = fake.unified(tmp_path / "root", "/x.slice", may_write="/" if able else "/nowhere")
        return choose(node, Journal.open(node, tmp_path / "state", "run"), FACTS, requested, "ab12")

    return choice


def test_the_best_that_works(chosen) -> None:
    runtime, sentence = chosen(None, able=True)
    assert runtime.name == "cgroup"
    assert sentence.startswith("Runtime cgroup (the best available here): cgroup v2 below /sys/fs/cgroup")


def test_the_next_best_says_why(chosen) -> None:
    runtime, sentence = chosen(None, able=False)
    assert runtime.name == "process"
    assert "cgroup can't be used" in sentence
    assert "Delegate=yes" in sentence


def test_as_asked(chosen) -> None:
    runtime, sentence = chosen("process", able=True)
    assert runtime.name == "process"
    assert "as asked" in sentence


def test_asked_but_unavailable(chosen) -> None:
    with pytest.raises(CapabilityError, match="cgroup runtime can't be used here.*Delegate=yes"):
        chosen("cgroup", able=False)


def test_unknown(chosen) -> None:
    with pytest.raises(UsageError, match="no runtime 'docker'.*cgroup, process"):
        chosen("docker", able=True)
