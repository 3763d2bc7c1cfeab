from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from pgherd.metrics.spool import Spool
from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import TrialError, UsageError
from pgherd.runtimes import balloon_manager
from pgherd.runtimes.balloon_controller import GuestEntitlement
from pgherd.runtimes.balloon_device import GuestReading
from pgherd.runtimes.balloon_manager import BALLOON, DRIVES, FIRST, MANAGER, BalloonManager, BalloonSpool, ManagedGuest

MB = 2**20
BALLOONS = VmMemoryPolicy(policy="virtio-balloon", reserve=0)


def answered(answer: Callable[[], Any], hang: threading.Event | None = None) -> Future[Any]:
    """What an answer gives or raises: at once, or when ``hang`` is set."""
    future: Future[Any] = Future()

    def settle() -> None:
        if hang is not None:
            hang.wait(30)
        try:
            future.set_result(answer())
        except Exception as error:
            future.set_exception(error)

    if hang is None:
        settle()
    else:
        threading.Thread(target=settle, daemon=True).start()
    return future


class FakeBalloon:
    """A guest that does at once what it is asked; its used memory is given. ``hang`` holds an answer back, ``broken`` is raised."""

    def __init__(self, memory: int, used: int) -> None:
        self.memory, self.used, self.size = memory, used, memory
        self.targets: list[int] = []
        self.hang: threading.Event | None = None
        self.broken: Exception | None = None
        self.living = True
        self.swapped = 0
        self.asked = 0

    def set_target(self, size: int) -> Future[int]:
        self.targets.append(size)
        self.size = size
        return answered(lambda: size)

    def poll(self, *, drives: bool) -> Future[GuestReading]:
        self.asked += 1
        return answered(lambda: self._poll(drives), self.hang)

    def _poll(self, drives: bool) -> GuestReading:
        if self.broken is not None:
            raise self.broken
        size = self.size
        available = max(self.size - self.used, 0)
        if self.used > self.size:
            self.swapped += 50 * MB
        stats = {"stat-free-memory": available, "stat-available-memory": available, "stat-swap-in": self.swapped}
        reported = {"stats": stats, "last-update": int(time.time()) + self.asked}
        counted = [{"device": "data", "stats": {"wr_total_time_ns": 0, "rd_bytes": 0, "rd_operations": 1}}]
        return GuestReading(time.time(), size, reported, counted if drives else [])


def managed(name: str, balloon: FakeBalloon, **inputs) -> ManagedGuest:
    guest = GuestEntitlement(name, balloon.memory, inputs.pop("minimum", balloon.memory // 4), **inputs)
    return ManagedGuest(guest, balloon, lambda: balloon.living)


def pair(manager: BalloonManager, first=900, second=100) -> tuple[FakeBalloon, FakeBalloon]:
    busy, idle = FakeBalloon(1000 * MB, first * MB), FakeBalloon(1000 * MB, second * MB)
    manager.add(managed("busy", busy))
    manager.add(managed("idle", idle))
    return busy, idle


def rounds(manager: BalloonManager, number: int) -> None:
    for _ in range(number):
        manager.once(1.0)


def test_memory_goes_to_who_uses_it() -> None:
    manager = BalloonManager(BALLOONS, 1400 * MB)
    busy, idle = pair(manager)
    rounds(manager, 40)
    assert busy.size > 950 * MB and idle.size < 460 * MB and busy.size + idle.size <= 1400 * MB
    status = manager.status()
    assert status["busy"].actual == busy.size and status["idle"].target == idle.size and not status["busy"].failed


def test_other_policies_look_and_touch_nothing(tmp_path) -> None:
    for policy in ("static", "free-page-reporting"):
        manager = BalloonManager(VmMemoryPolicy(policy=policy), 100 * MB)
        busy, idle = pair(manager)
        manager.record(tmp_path / policy)
        rounds(manager, 3)
        assert manager.stop() == []
        assert busy.targets == idle.targets == []
        assert (tmp_path / policy).stat().st_size > 0


def test_minima_beyond_the_budget_are_refused_before() -> None:
    manager = BalloonManager(BALLOONS, 1000 * MB)
    manager.add(managed("a", FakeBalloon(1000 * MB, 1), minimum=600 * MB))
    with pytest.raises(UsageError, match="2 guests are guaranteed 1.17 GB"):
        manager.add(managed("b", FakeBalloon(1000 * MB, 1), minimum=600 * MB))
    assert list(manager.status()) == ["a"]
    with pytest.raises(UsageError, match="1 guests are guaranteed"):
        manager.change_budget(500 * MB)
    manager.change_budget(700 * MB)


def test_a_dead_guest_leaves_its_memory_to_the_others() -> None:
    manager = BalloonManager(BALLOONS, 1400 * MB)
    busy, idle = pair(manager)
    rounds(manager, 20)
    idle.living, idle.broken = False, ConnectionResetError("gone")
    rounds(manager, 20)
    assert list(manager.status()) == ["busy"] and busy.size == 1000 * MB


def test_a_guest_that_fails_to_answer_keeps_what_it_has() -> None:
    manager = BalloonManager(BALLOONS, 1400 * MB)
    busy, idle = pair(manager)
    rounds(manager, 20)
    size = idle.size
    idle.broken = RuntimeError("no such device")
    rounds(manager, 20)
    assert manager.status()["idle"].failed == "RuntimeError: no such device"
    assert busy.size + max(size, idle.size) <= 1400 * MB
    idle.broken = None
    rounds(manager, 1)
    assert not manager.status()["idle"].failed


def test_a_late_guest_holds_up_nobody() -> None:
    manager = BalloonManager(BALLOONS, 1400 * MB, period=0.05)
    busy, idle = pair(manager)
    idle.hang = threading.Event()
    manager.start()
    try:
        for _ in range(400):
            if busy.asked > 5:
                break
            time.sleep(0.05)
        assert busy.asked > 5 and idle.asked <= 2, "it is not asked again before it has answered"
        assert manager.status()["idle"].late
    finally:
        idle.hang.set()
        manager.stop()
    assert not manager._rounds.why


def test_however_many_guests_are_late_the_others_are_asked() -> None:
    """A dozen frozen guests: no thread waits for any of them."""
    manager = BalloonManager(BALLOONS, None, period=0.05)
    released = threading.Event()
    for number in range(12):
        frozen = FakeBalloon(1000 * MB, 100 * MB)
        frozen.hang = released
        manager.add(managed(f"frozen{number}", frozen))
    well = FakeBalloon(1000 * MB, 100 * MB)
    manager.add(managed("well", well))
    manager.start()
    try:
        deadline = time.monotonic() + 25
        while well.asked <= 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        late = [name for name, status in manager.status().items() if status.late]
    finally:
        released.set()
        manager.stop()
    assert well.asked > 5 and len(late) >= 12


def test_the_loop_ends_and_gives_everything_back(tmp_path) -> None:
    manager = BalloonManager(BALLOONS, 1400 * MB, period=0.02)
    busy, idle = pair(manager)
    manager.record(tmp_path / "spool")
    manager.start()
    for _ in range(500):
        if idle.size < 900 * MB:
            break
        time.sleep(0.02)
    assert idle.size < 900 * MB
    assert manager.stop() == []
    assert busy.size == idle.size == 1000 * MB
    request = busy.asked
    time.sleep(0.1)
    assert busy.asked == request, "nothing runs any more"
    with (tmp_path / "spool").open() as lines:
        spool = Spool(lines)
        result = [(entity, values) for _, _, entity, values in spool]
    own = [values["cpu.usage"] for entity, values in result if entity == "platform:balloon-manager"]
    assert 0 < own[0] <= own[-1] < 60 and own == sorted(own), "the CPU of its own threads"
    guests = {"guest:busy", "guest:idle", "guest-drive:busy/data", "guest-drive:idle/data"}
    assert {entity for entity, _ in result} == guests | {"platform:balloon-manager"} and not spool.failures


def test_who_does_not_take_its_memory_back_is_named() -> None:
    manager = BalloonManager(BALLOONS, 1400 * MB, period=0.02)
    busy, idle = pair(manager)
    rounds(manager, 20)
    idle.broken = OSError("gone")
    assert manager.stop(patience=0.1) == ["idle"]
    assert busy.size == 1000 * MB


def test_actual_beside_target_is_recorded(tmp_path) -> None:
    manager = BalloonManager(BALLOONS, 1400 * MB)
    pair(manager)
    manager.record(tmp_path / "a")
    rounds(manager, 2)
    manager.record(tmp_path / "b")
    rounds(manager, 1)
    manager.record(None)
    rounds(manager, 1)

    def read(name):
        with (tmp_path / name).open() as lines:
            return [values for _, sampler, entity, values in Spool(lines) if (sampler, entity) == ("guest_balloon", "guest:idle")]

    first, second = read("a"), read("b")
    assert (len(first), len(second)) == (2, 1)
    assert (
        first[0]["guest.memory_balloon_actual"] == 1000 * MB
        and first[1]["guest.memory_balloon_actual"] == first[1]["guest.target"] < 1000 * MB
    )


def test_a_reading_bears_the_time_of_the_answer(tmp_path, monkeypatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(balloon_manager.time, "time", lambda: clock[0])
    slow = FakeBalloon(1000 * MB, 100 * MB)
    tell = slow._poll

    def look(drives: bool) -> GuestReading:
        clock[0] += 0.4
        reported = tell(drives)
        clock[0] += 0.3  # until the manager hears of it
        return reported

    monkeypatch.setattr(slow, "_poll", look)
    manager = BalloonManager(BALLOONS, 1400 * MB)
    manager.add(managed("slow", slow))
    manager.record(tmp_path / "spool")
    rounds(manager, 1)
    manager.record(None)
    with (tmp_path / "spool").open() as lines:
        result = {entity: at for at, _, entity, _ in Spool(lines)}
    assert result["guest:slow"] == result["guest-drive:slow/data"] == pytest.approx(1000.4)


def test_a_full_disk_is_told_at_the_end_of_the_recording() -> None:
    from pathlib import Path

    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    manager = BalloonManager(BALLOONS, 1400 * MB)
    pair(manager)
    manager.record(Path("/dev/full"))
    rounds(manager, 1)
    with pytest.raises(OSError, match="No space"):
        manager.record(None)


def played(manager: BalloonManager, outcomes: list[bool], monkeypatch) -> None:
    """Rounds of the loop, each finished or not."""
    remaining = [*outcomes]

    def once(seconds: float) -> None:
        finished = remaining.pop(0)
        if not remaining:
            manager._ending.set()
        if not finished:
            raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(manager, "once", once)
    monkeypatch.setattr(manager, "_period", 0.0)
    manager._ending.clear()
    manager._loop()


ROW = balloon_manager._MAX_FAILED_IN_A_ROW


@pytest.mark.parametrize("outcomes", [[False] * ROW, [True] * 200 + [False] * ROW, [True, False] * (ROW + 1)])
def test_rounds_that_were_not_finished_are_told_at_the_end_of_the_recording(tmp_path, monkeypatch, outcomes) -> None:
    """Else a run would say 'virtio-balloon' of balloons that nobody has moved."""
    manager = BalloonManager(BALLOONS, 1400 * MB)
    played(manager, [False] * 10, monkeypatch)  # when nothing was recorded
    manager.record(tmp_path / "spool")
    played(manager, outcomes, monkeypatch)
    failed = outcomes.count(False)
    text = f"did not finish {failed} of its {len(outcomes)} rounds.*ZeroDivisionError: division.*virtio-balloon was not enforced; repeat"
    with pytest.raises(TrialError, match=text):
        manager.record(None)
    with (tmp_path / "spool").open() as lines:
        spool = Spool(lines)
        assert not list(spool)
    assert [failure.count for failure in spool.failures.values()] == [failed]


def test_a_round_or_two_of_many_fail_nothing(tmp_path, monkeypatch) -> None:
    for outcomes in ([False, True], [False] * (ROW - 1) + [True] * 30, ([False] + [True] * 20) * 10):
        manager = BalloonManager(BALLOONS, 1400 * MB)
        manager.record(tmp_path / "spool")
        played(manager, outcomes, monkeypatch)
        manager.record(None)


def test_where_no_balloon_is_moved_rounds_fail_nothing(tmp_path, monkeypatch) -> None:
    manager = BalloonManager(VmMemoryPolicy(policy="static"), 1400 * MB)
    manager.record(tmp_path / "spool")
    played(manager, [False] * 50, monkeypatch)
    manager.record(None)


@pytest.mark.parametrize("error", [OSError("the group has gone"), ValueError("not a number")])
def test_balloons_are_moved_although_nobody_knows_what_the_host_has_free(error) -> None:
    def free():
        raise error

    manager = BalloonManager(BALLOONS, 1400 * MB, free)
    _, idle = pair(manager)
    rounds(manager, 20)
    assert idle.size < 900 * MB


def test_a_container_is_a_guest_with_what_it_was_promised() -> None:
    class Questions:
        def heard(self, event):
            return 0

        def ask(self, commands, then):
            return answered(lambda: then([{"actual": 7} for _ in commands]))

    class Machine:
        running, qmp = True, Questions()

    machine = Machine()
    outcome = balloon_manager.managed(
        Container(name="db1", runtime="vm", memory=1024 * MB, vm_memory_min=300 * MB, vm_memory_shares=2), machine, 64 * MB
    )
    assert outcome.guest == GuestEntitlement("db1", 1024 * MB, 300 * MB, 2.0, 64 * MB)
    assert outcome.alive() and outcome.balloon.poll(drives=False).result().actual == 7
    machine.running = False
    assert not outcome.alive()
    assert balloon_manager.entitlement_of(Container(name="db1", memory=1024 * MB), 0).minimum == 256 * MB
    with pytest.raises(UsageError, match="guest db1 has no memory size"):
        balloon_manager.entitlement_of(Container(name="db1", runtime="vm"), 0)


SEEN = {"memory": 400, "minimum": 100, "actual": 300, "target": 250, "working_set": 200, "at": 12.0, "last_update": 10}
STATS = {"stats": {"stat-free-memory": 7, "stat-swap-in": 18446744073709551615}}
DRIVE = {"device": "data", "stats": {"rd_operations": 3, "wr_operations": 4, "rd_total_time_ns": 5, "wr_total_time_ns": 6}}


def test_its_lines_become_metrics_beside_those_of_the_sampling_loop(tmp_path) -> None:
    path = tmp_path / "spool.jsonl"
    path.write_text('{"sources":[["vmstat","host","file","/proc/vmstat",""]],"first":0}\n{"t":11.5,"i":0,"raw":"pswpin 3\\n"}\n')
    spool = BalloonSpool(path)
    spool.write([(12.0, BALLOON, "a", SEEN | STATS), (12.1, DRIVES, "a", [DRIVE]), (12.2, BALLOON, "b", "it has ended")])
    spool.write([])
    spool.close()
    with path.open() as lines:
        read = Spool(lines)
        result = [(t, entity, values) for t, _, entity, values in read]
    assert [(t, entity) for t, entity, _ in result] == [(11.5, "host"), (12.0, "guest:a"), (12.1, "guest-drive:a/data")]
    values = result[1][2]
    assert values["guest.ballooned"] == 100 and values["guest.free"] == 7 and values["guest.statistics_age"] == 2
    assert "guest.swap_in" not in values, "the guest does not tell"
    assert [(source.entity, failure.last) for source, failure in read.failures.items()] == [("guest:b", "it has ended")]


def test_every_line_is_whole_and_looks_like_the_loops(tmp_path) -> None:
    spool = BalloonSpool(tmp_path / "s")
    spool.write([(1.0, BALLOON, "a", SEEN | STATS)])
    spool.close()
    announced, reading = (tmp_path / "s").read_text().splitlines()
    assert json.loads(announced)["first"] == FIRST
    assert reading.startswith(f'{{"t":1.0,"i":{FIRST},')


def test_a_full_disk_is_kept_and_does_not_raise() -> None:
    from pathlib import Path

    if not Path("/dev/full").exists():
        return
    spool = BalloonSpool(Path("/dev/full"))
    spool.write([(1.0, BALLOON, "a", {})])
    spool.write([(2.0, BALLOON, "a", {})])
    assert spool.error is not None
    spool.close()


def test_what_the_manager_says_of_itself_is_of_no_guest(tmp_path) -> None:
    spool = BalloonSpool(tmp_path / "s")
    spool.write([(1.0, MANAGER, "", {"cpu": 0.5})])
    spool.close()
    with (tmp_path / "s").open() as lines:
        assert list(Spool(lines)) == [(1.0, "balloon_manager", "platform:balloon-manager", {"cpu.usage": 0.5})]
