"""A host's station, without Dask: its lease, its objects, and what happens when the driver is lost."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import ClassVar

import pytest

from pgherd import __version__
from pgherd.cluster import dask_client, object_host
from pgherd.cluster.interfaces import this_host
from pgherd.cluster.object_host import ObjectHost, dumps, loads
from pgherd.model.errors import CapabilityError, TrialError

pytest.importorskip("cloudpickle")


class Thing:
    """Notes what is done to it."""

    let_go: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def greet(self, word: str) -> str:
        return f"{word} from {self.name} on {this_host()} in {threading.current_thread().name.partition('_')[0]}"

    def fail(self, error: BaseException) -> None:
        raise error

    def lost(self) -> None:
        Thing.let_go.append(self.name)
        if self.name == "bad":
            raise OSError("cannot be stopped")


class Slow(Thing):
    """Is being made until it may go on."""

    begun: ClassVar[threading.Event]
    go_on: ClassVar[threading.Event]

    def __init__(self, name: str) -> None:
        super().__init__(name)
        Slow.begun.set()
        assert Slow.go_on.wait(20)


class Odd(Exception):
    """Cannot be unpickled: it takes two arguments and passes on one."""

    def __init__(self, item: str, two: str) -> None:
        super().__init__(item)


@pytest.fixture(autouse=True)
def noted():
    Thing.let_go = []


def run(scenario) -> None:
    async def with_station() -> None:
        host = ObjectHost("db1", asyncio.get_running_loop())
        try:
            await scenario(host)
        finally:
            await host.close()

    asyncio.run(with_station())


async def _make(made: ObjectHost, token: str, name: str) -> object_host.Answer:
    return await made.make(token, "thing", dumps((Thing, (name,))))


def test_objects_are_made_called_and_let_go_of():
    async def scenario(made: ObjectHost) -> None:
        assert "busy" not in await made.attach("t", "driver")
        assert await _make(made, "t", "one") == ("value", b"")
        kind, data = await made.call("t", "thing", "greet", dumps(("hello",)))
        assert kind == "value" and loads(data) == "hello from one on db1 in pgherd"
        await _make(made, "t", "two")
        assert Thing.let_go == ["one"], "what is replaced is let go of first"
        assert made.look()["objects"] == 1 and made.look()["driver"] == "driver"
        assert await made.detach("t")
        assert Thing.let_go == ["one", "two"] and made.lease is None and made.look()["objects"] == 0

    run(scenario)


@pytest.mark.parametrize("error", [CapabilityError("no"), FileNotFoundError(2, "gone", "/x"), ValueError("odd")])
def test_errors_travel_as_they_are(error):
    async def scenario(made: ObjectHost) -> None:
        await made.attach("t", "driver")
        await _make(made, "t", "one")
        kind, data = await made.call("t", "thing", "fail", dumps((error,)))
        document = loads(data)
        assert kind == "error" and type(document) is type(error) and document.args == error.args
        assert "in fail" in document.__notes__[0], "where it happened is kept for a debugging user"

    run(scenario)


def test_what_cannot_travel_becomes_its_text():
    async def scenario(made: ObjectHost) -> None:
        await made.attach("t", "driver")
        for thing, text in ((Odd, "TypeError"), (KeyboardInterrupt, "KeyboardInterrupt")):

            class Raises:
                kind: type[BaseException] = thing

                def go(self) -> None:
                    raise self.kind()

            await made.make("t", "raises", dumps((Raises, ())))
            kind, data = await made.call("t", "raises", "go", dumps(()))
            document = loads(data)
            assert kind == "error" and text in f"{type(document).__name__}: {document}"
            assert isinstance(document, TrialError | TypeError)

    run(scenario)


def test_only_the_holder_may_do_anything():
    async def scenario(made: ObjectHost) -> None:
        await made.attach("t", "the first")
        await _make(made, "t", "one")
        assert "the first" in (await made.attach("u", "the second"))["busy"]
        assert await made.beat("u") is None and await made.call("u", "thing", "greet", dumps(("x",))) == ("strange", b"")
        assert await _make(made, "u", "two") == ("strange", b"") and not await made.detach("u")
        assert await made.beat("t") == pytest.approx(time.time(), abs=5) and Thing.let_go == []
        assert "busy" not in await made.attach("t", "the first")
        assert Thing.let_go == ["one"], "a driver that comes back finds nothing of what it had"
        assert await made.call("t", "thing", "greet", dumps(("x",))) == ("strange", b"")

    run(scenario)


def test_a_lease_that_runs_out_lets_everything_go(monkeypatch):
    monkeypatch.setattr(object_host, "LOST_AFTER", 0.3)
    monkeypatch.setattr(object_host, "LOOK", 0.05)

    async def scenario(made: ObjectHost) -> None:
        await made.attach("t", "driver")
        for key, name in (("one", "one"), ("two", "bad")):
            await made.make("t", key, dumps((Thing, (name,))))
        for _ in range(4):
            await asyncio.sleep(0.15)
            assert await made.beat("t") is not None, "beats renew it"
        while made.lease is not None:
            await asyncio.sleep(0.02)
        assert sorted(Thing.let_go) == ["bad", "one"], "one that fails does not keep the others from it"
        assert await made.beat("t") is None and "busy" not in await made.attach("u", "the next")

    run(scenario)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_host_that_was_held_up_itself_does_not_blame_its_driver(monkeypatch, noticed):
    monkeypatch.setattr(object_host, "LOST_AFTER", 0.3)
    monkeypatch.setattr(object_host, "LOOK", 0.05)

    async def scenario(made: ObjectHost) -> None:
        await made.attach("t", "driver")
        await _make(made, "t", "one")
        await asyncio.sleep(0.1)
        if not noticed:
            made._check_due = float("inf")
        time.sleep(0.6)  # the loop stands still
        for _ in range(5):  # what is overdue comes first: the look, and then the beat that has waited
            await asyncio.sleep(0)
        assert (await made.beat("t") is not None) is noticed

    run(scenario)


def test_a_host_that_still_cleans_up_is_busy_and_the_end_waits_for_it():
    async def scenario(made: ObjectHost) -> None:
        slow = threading.Event()

        class Slow:
            def lost(self) -> None:
                slow.wait(20)

        await made.attach("t", "driver")
        made.objects["slow"] = Slow()
        cleaning = asyncio.create_task(made.detach("t"))
        await asyncio.sleep(0.05)
        assert "cleaning up" in (await made.attach("u", "the next"))["busy"] and made.look()["cleaning"]
        slow.set()
        assert await cleaning
        assert "busy" not in await made.attach("u", "the next")

    run(scenario)


def test_what_is_replaced_and_still_cleans_up_is_waited_for():
    async def scenario(made: ObjectHost) -> None:
        slow = threading.Event()

        class Replaced:
            def lost(self) -> None:
                slow.wait(20)

        await made.attach("t", "driver")
        made.objects["thing"] = Replaced()
        makes = []
        for name in ("one", "two"):
            makes.append(asyncio.create_task(_make(made, "t", name)))
            await asyncio.sleep(0.05)
        assert not makes[1].done(), "it would find what the first one still holds"
        cleaning = asyncio.create_task(made.detach("t"))
        await asyncio.sleep(0.05)
        assert "cleaning up" in (await made.attach("u", "the next"))["busy"]
        slow.set()
        assert await cleaning and [await make for make in makes] == [("strange", b"")] * 2
        assert "busy" not in await made.attach("u", "the next") and made.look()["objects"] == 0

    run(scenario)


def test_what_is_made_after_another_one_was_wanted_is_let_go_of():
    async def scenario(made: ObjectHost) -> None:
        Slow.begun, Slow.go_on = threading.Event(), threading.Event()
        await made.attach("t", "driver")
        late = asyncio.create_task(made.make("t", "thing", dumps((Slow, ("late",)))))
        while not Slow.begun.is_set():
            await asyncio.sleep(0.01)
        assert await _make(made, "t", "wanted") == ("value", b"")
        Slow.go_on.set()
        assert await late == ("strange", b"") and Thing.let_go == ["late"]
        assert loads((await made.call("t", "thing", "greet", dumps(("hello",))))[1]).startswith("hello from wanted")

    run(scenario)


def test_what_was_changed_at_the_worker_is_given_back_with_the_lease():
    async def scenario(made: ObjectHost) -> None:
        inputs: list[str] = []
        await made.attach("t", "driver")
        made.restore = lambda: inputs.append("back")
        await made.detach("t")
        assert inputs == ["back"]

    run(scenario)


def test_a_host_tells_what_it_is(loopback):
    with dask_client.connect(loopback, hold=False) as connection:
        observed, result = connection.ask("look"), connection.ask("versions")
    assert observed["left"]["pid"] == os.getpid() and observed["left"]["memory"] > 1e6 and observed["left"]["driver"] is None
    assert result["right"]["pgherd"] == __version__
