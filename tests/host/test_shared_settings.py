"""Holds on kernel settings that several runs share: in any order of their ends, the old setting is restored."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgherd.host import shared_settings
from pgherd.host.huge_pages import SHARED, pool_file
from pgherd.node.files import Directory

SMALL = 2 * 2**20
PATH = pool_file(SMALL)


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(shared_settings, "LEDGER", tmp_path / "holds.json")
    yield tmp_path / "holds.json"


def never() -> None:
    raise AssertionError("there was no reason to try again")


def test_what_was_added_goes_and_nothing_is_left(ledger: Path, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    node.total[SMALL] = 7
    assert shared_settings.add(node, "a", PATH, 100, never) == 100
    assert node.total[SMALL] == 107 and ledger.exists()
    assert shared_settings.give_back(node, "a") == [f"wrote 7 back to {PATH}"]
    assert node.total[SMALL] == 7 and not ledger.exists()
    assert shared_settings.give_back(node, "a") == [], "twice does no harm"


def test_the_first_of_two_runs_to_end_leaves_the_other_its_pages(fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    shared_settings.add(node, "a", PATH, 100, never)
    shared_settings.add(node, "b", PATH, 50, never)
    shared_settings.give_back(node, "a")
    assert node.total[SMALL] == 50
    shared_settings.give_back(node, "b")
    assert node.total[SMALL] == 0


def test_a_change_that_was_never_made_takes_nothing_away(monkeypatch: pytest.MonkeyPatch, fake_pools: Any) -> None:
    """A run that is killed between its note and its change."""
    node = fake_pools.PoolNode()
    node.total[SMALL] = 40

    def killed(path: str, data: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(node, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            shared_settings.add(node, "a", PATH, 100, never)
    assert shared_settings.give_back(node, "a") == []
    assert node.total[SMALL] == 40


def test_what_somebody_else_added_meanwhile_stays_theirs(fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    shared_settings.add(node, "a", PATH, 100, never)
    node.total[SMALL] += 30
    shared_settings.add(node, "b", PATH, 10, never)
    shared_settings.give_back(node, "b")
    shared_settings.give_back(node, "a")
    assert node.total[SMALL] == 30


def test_what_somebody_else_took_away_is_not_taken_once_more(fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    node.total[SMALL] = 10
    shared_settings.add(node, "a", PATH, 100, never)
    node.total[SMALL] = 4
    shared_settings.give_back(node, "a")
    assert node.total[SMALL] == 4


def test_pages_in_use_are_not_counted_twice(fake_pools: Any) -> None:
    """A pool that was lowered below what is in use shows the rest as surplus, which goes by itself."""
    node = fake_pools.PoolNode()
    node.total[SMALL], node.used[SMALL] = 10, 10
    node.write(PATH, b"4")
    assert shared_settings.add(node, "a", PATH, 5, never) == 5
    assert node.total[SMALL] == 9
    shared_settings.give_back(node, "a")
    assert node.total[SMALL] == 4


def test_a_word_goes_back_when_the_last_has_ended(fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    shared_settings.choose(node, "a", SHARED, "always")
    shared_settings.choose(node, "b", SHARED, "always")
    assert node.shared == "always"
    assert shared_settings.give_back(node, "a") == []
    assert node.shared == "always"
    assert shared_settings.give_back(node, "b") == [f"wrote never back to {SHARED}"]
    assert node.shared == "never"


def test_two_words_at_once_are_refused(fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    shared_settings.choose(node, "a", SHARED, "always")
    with pytest.raises(shared_settings.SettingConflict, match="held at 'always' by process"):
        shared_settings.choose(node, "b", SHARED, "never")
    shared_settings.give_back(node, "b")
    assert node.shared == "always"


def test_what_the_dead_hold_is_swept_and_what_the_living_hold_stays(ledger: Path, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    shared_settings.add(node, "living", PATH, 20, never)
    shared_settings.add(node, "dead", PATH, 30, never)
    text = ledger.read_text()
    start = text.rindex('"start":')
    ledger.write_text(text[:start] + '"start":1}}}}}')
    assert shared_settings.sweep(node) == [f"wrote 20 back to {PATH}"]
    assert node.total[SMALL] == 20
    assert shared_settings.sweep(node) == []


def test_a_ledger_of_an_earlier_boot_counts_for_nothing(ledger: Path, fake_pools: Any) -> None:
    node = fake_pools.PoolNode()
    shared_settings.add(node, "a", PATH, 20, never)
    text = ledger.read_text()
    ledger.write_text(text.replace(text.split('"')[3], "another boot"))
    node.total[SMALL] = 0
    assert shared_settings.give_back(node, "a") == []
    assert node.total[SMALL] == 0


@pytest.mark.parametrize("text", ["", "{", '{"boot": 3}'])
def test_a_ledger_that_cannot_be_read_counts_as_empty(ledger: Path, text: str, fake_pools: Any) -> None:
    ledger.write_text(text)
    assert shared_settings.give_back(fake_pools.PoolNode(), "a") == []


STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 40), st.booleans()), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, before=st.integers(0, 50))
def test_in_whatever_order_runs_begin_and_end_the_pool_is_what_it_was(
    fake_pools: Any, steps: list[tuple[str, int, bool]], before: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_settings, "LEDGER", Path(directory) / "holds.json")
        node = fake_pools.PoolNode()
        node.total[SMALL] = before
        held: dict[str, int] = {}
        for key, amount, back in steps:
            if back:
                shared_settings.give_back(node, key)
                held.pop(key, None)
            elif key not in held:
                shared_settings.add(node, key, PATH, amount, never)
                held[key] = amount
            assert node.total[SMALL] == before + sum(held.values())
        for key in "abcd":
            shared_settings.give_back(node, key)
        assert node.total[SMALL] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_another_user_cannot_hold_up_the_ledger(fake_pools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the directory, which anybody may open in /run, nor by a file in it."""
    ledger = Path(tempfile.mkdtemp(prefix="pgherd-test-")) / "holds.json"  # all may enter the directory around it
    ledger.parent.chmod(0o755)
    monkeypatch.setattr(shared_settings, "LEDGER", ledger)
    node = fake_pools.PoolNode()
    shared_settings.add(node, "a", PATH, 10, never)
    user = ["setpriv", "--reuid=65534", "--clear-groups", "flock", "--exclusive"]
    hold = [*user, "--no-fork", str(ledger.parent), "sh", "-c", "echo held; exec sleep 60"]
    with subprocess.Popen(hold, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            assert attacker.stdout is not None and attacker.stdout.readline() == "held\n"
            shared_settings.add(node, "b", PATH, 10, never)
        finally:
            attacker.kill()
    for file in (ledger, ledger.with_suffix(".lock")):
        finished = subprocess.run([*user, str(file), "true"], capture_output=True, text=True)
        assert finished.returncode != 0 and "Permission denied" in finished.stderr, "it must not be possible to open it"
    assert shared_settings.give_back(node, "a") and shared_settings.give_back(node, "b")
    shutil.rmtree(ledger.parent)


def test_a_lock_that_is_not_given_up_ends_with_the_name_of_its_holder(
    ledger: Path, fake_pools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Directory.lock
    monkeypatch.setattr(Directory, "lock", lambda self, name: lock(self, name, timeout=0.1))
    node = fake_pools.PoolNode()
    shared_settings.add(node, "a", PATH, 10, never)
    with shared_settings._locked(node), pytest.raises(TimeoutError, match=f"holds.lock is locked by process {os.getpid()}"):
        shared_settings.give_back(node, "a")
