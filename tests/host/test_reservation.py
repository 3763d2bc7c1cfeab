from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pgherd.host import processes, reservation
from pgherd.host.reservation import live, reserve
from pgherd.model.errors import CapabilityError
from pgherd.model.host_facts import HostFacts

GB = 1 << 30
FACTS = HostFacts(hostname="h", kernel="k", cores=8, logical_cpus=8, memory=16 * GB)
CPUS = tuple(range(8))


def test_budgets_that_fit_get_cpus_of_their_own(tmp_path: Path) -> None:
    with reserve(tmp_path, "one", 4, 8 * GB, FACTS, CPUS) as item, reserve(tmp_path, "two", 3.5, 8 * GB, FACTS, CPUS) as two:
        assert item.cpus == (0, 1, 2, 3)
        assert two.cpus == (4, 5, 6, 7)
        assert [x.run for x in live(tmp_path)] == ["one", "two"]
    assert live(tmp_path) == []


@pytest.mark.parametrize(
    ("cores", "memory"),
    [(5, 1 * GB), (1, 9 * GB), (None, 1 * GB), (1, None), (None, None)],
)
def test_a_budget_that_does_not_fit_names_the_other_run(tmp_path: Path, cores: float | None, memory: int | None) -> None:
    with (
        reserve(tmp_path, "one", 4, 8 * GB, FACTS, CPUS) as item,
        pytest.raises(CapabilityError, match=rf"run one \(pid {item.pid}\) holds 4 cores and 8 GB.*limit the cores and memory of both"),
        reserve(tmp_path, "two", cores, memory, FACTS, CPUS),
    ):
        pass
    assert live(tmp_path) == []


def test_without_a_budget_a_run_takes_the_whole_host(tmp_path: Path) -> None:
    with reserve(tmp_path, "one", None, None, FACTS, CPUS) as item:
        assert item.cpus is None
        with pytest.raises(CapabilityError, match="all cores and all memory"), reserve(tmp_path, "two", 1, GB, FACTS, CPUS):
            pass


def test_fractions_that_sum_up_to_the_host_fit(tmp_path: Path) -> None:
    facts = FACTS.model_copy(update={"cores": 0.3})
    with reserve(tmp_path, "one", 0.1, GB, facts, (0,)), reserve(tmp_path, "two", 0.2, GB, facts, (0,)) as two:
        assert two.cpus == (0,)


@pytest.mark.parametrize(("cores", "memory"), [(9, GB), (1, 17 * GB)])
def test_more_than_the_host_has(tmp_path: Path, cores: float, memory: int) -> None:
    with pytest.raises(CapabilityError, match="this host has"), reserve(tmp_path, "one", cores, memory, FACTS, CPUS):
        pass


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("ended", [True, False])
def test_runs_on_another_machine_hold_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_boot: bool, ended: bool) -> None:
    """Both have the same home directory. With the same boot it is another container on this machine."""
    with monkeypatch.context() as patch:
        patch.setattr(reservation, "machine_names", lambda node: ("f" * 32, "elsewhere"))
        if not same_boot:
            patch.setattr(processes, "boot_id", lambda node: "x")
        theirs = contextlib.ExitStack()
        theirs.enter_context(reserve(tmp_path, "theirs", None, None, FACTS, CPUS))
    (file,) = (tmp_path / "reservations").glob("*.json")
    with theirs:
        if ended:
            os.rename(shutil.copy(file, tmp_path / "unlocked"), file)
        assert [item.run for item in live(tmp_path)] == (["theirs"] if same_boot and not ended else [])
        assert file.exists() == (not ended or not same_boot), "what another machine left behind is not examined here"


def test_a_reservation_of_a_former_version_counts(tmp_path: Path) -> None:
    with reserve(tmp_path, "one", 4, 8 * GB, FACTS, CPUS):
        (file,) = (tmp_path / "reservations").glob("*.json")
        file.write_text('{"run": "one", "pid": 1, "cores": 4, "memory": null, "cpus": null}')
        assert [item.run for item in live(tmp_path)] == ["one"]


def test_the_dead_hold_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from pgherd.host.reservation import reserve\nfrom pgherd.model.host_facts import HostFacts\n"
        "facts = HostFacts(hostname='h', kernel='k', cores=8, logical_cpus=8, memory=16 << 30)\n"
        "with reserve(Path(sys.argv[1]), 'dead', None, None, facts):\n    print('in', flush=True)\n    time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        with pytest.raises(CapabilityError, match=rf"pid {process.pid}"), reserve(tmp_path, "two", 1, GB, FACTS, CPUS):
            pass
        process.kill()
    with reserve(tmp_path, "two", None, None, FACTS, CPUS):
        assert [x.run for x in live(tmp_path)] == ["two"]
