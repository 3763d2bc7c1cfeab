from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.runtimes import runtime_selection
from pgherd.runtimes.runtime_selection import RuntimePool, choose

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


def test_somebody_elses_server_is_never_chosen_by_itself(chosen) -> None:
    runtime, sentence = chosen("external", able=True)
    assert runtime.name == "external" and "as asked" in sentence


def test_unless_it_is_named_it_does_not_exist(chosen) -> None:
    with pytest.raises(UsageError, match="choose one of cgroup, process$"):
        chosen("docker", able=False)


class Told:
    """A runtime that remembers what it was told."""

    able = True
    refuses = False

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def open(self, host: Host) -> None:
        self.log.append(f"open {self.name} {host.cores} {host.memory}")
        if self.refuses:
            raise CapabilityError("it is too small")

    def close(self) -> None:
        self.log.append(f"close {self.name}")


@pytest.fixture
def pool_and_log(tmp_path: Path, fake, monkeypatch: pytest.MonkeyPatch):
    log: list[str] = []
    monkeypatch.setattr(runtime_selection, "choose", lambda node, journal, facts, name, suffix, cpus: (Told(name, log), ""))
    node = fake.FakeNode(tmp_path / "root", {})
    return RuntimePool(node, Journal.open(node, tmp_path / "state", "run"), FACTS, Host(cores=2, memory=5), "ab12"), log


def test_each_is_opened_when_it_is_needed_and_closed_in_the_end(pool_and_log) -> None:
    runtimes, log = pool_and_log
    assert runtimes.get("process") is runtimes.get("process")
    runtimes.get("cgroup")
    assert log == ["open process 2.0 None", "open cgroup 2.0 5"], "only control groups can hold a memory budget"
    runtimes.close()
    assert log[2:] == ["close cgroup", "close process"]
    runtimes.close()
    assert len(log) == 4


def test_one_that_cannot_be_opened_leaves_nothing(pool_and_log, monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes, log = pool_and_log
    monkeypatch.setattr(Told, "refuses", True)
    with pytest.raises(CapabilityError, match="too small"):
        runtimes.get("cgroup")
    assert log[-1] == "close cgroup"
    monkeypatch.setattr(Told, "refuses", False)
    assert runtimes.get("cgroup").name == "cgroup"


def test_all_are_closed_even_if_one_fails(pool_and_log, monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes, log = pool_and_log
    runtimes.get("process")
    runtimes.get("cgroup")

    def failing(self: Told) -> None:
        log.append(f"close {self.name}")
        raise OSError(f"{self.name} is busy")

    monkeypatch.setattr(Told, "close", failing)
    with pytest.raises(OSError, match="cgroup is busy; process is busy"):
        runtimes.close()
    assert log[2:] == ["close cgroup", "close process"]
