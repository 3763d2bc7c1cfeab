from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.runtimes.vm import agent_wire

VALUES = st.recursive(st.integers() | st.binary(max_size=60), lambda inner: st.lists(inner, max_size=5), max_leaves=20)
NASTY = st.lists(st.sampled_from([b"\xc0", b"\xdb", b"\xdc", b"\xdd", b"x", b"\0"]), max_size=30).map(b"".join)
BODIES = st.lists(NASTY | st.binary(max_size=60), min_size=1, max_size=6)


@given(VALUES)
def test_bodies_come_back(value):
    assert agent_wire.decode(agent_wire.encode(value)) == value


@pytest.mark.parametrize(
    "value, coded",
    [(b"spam", b"4:spam"), (3, b"i3e"), (-3, b"i-3e"), (0, b"i0e"), ([b"spam", b"eggs"], b"l4:spam4:eggse"), ([], b"le"), (b"", b"0:")],
)
def test_bodies_are_those_of_bep_3(value, coded):
    """The examples of the specification."""
    assert agent_wire.encode(value) == coded and agent_wire.decode(coded) == value


@given(st.binary(max_size=80) | NASTY | st.text("0123456789:ile-", max_size=30).map(str.encode))
def test_what_is_no_body_is_an_error_and_never_hangs(data):
    try:
        value = agent_wire.decode(data)
    except ValueError:
        return
    assert agent_wire.decode(agent_wire.encode(value)) == value


@pytest.mark.parametrize("data", [b"", b"e", b"5:abc", b"-1:", b"i1", b"l", b"4:spamx", b"i1_0", b"x:"])
def test_what_is_refused(data):
    with pytest.raises(ValueError):
        agent_wire.decode(data)


def test_deep_bodies_need_no_stack():
    value = agent_wire.decode(b"l" * 50_000 + b"e" * 50_000)
    for _ in range(49_999):
        (value,) = value
    assert value == []


def test_what_has_no_place_in_a_body():
    with pytest.raises(TypeError, match="str cannot be encoded"):
        agent_wire.encode([b"read", "/proc/stat"])


@given(BODIES, st.integers(0, 2**64 - 1), st.data())
def test_frames_survive_any_cutting(bodies, session, data):
    stream = b"".join(agent_wire.frame(session, number, body) for number, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames = agent_wire.FrameDecoder()
    collected = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        collected += frames.feed(stream[start:end])
    assert collected == [(session, number, body) for number, body in enumerate(bodies)]


@given(BODIES, NASTY | st.binary(max_size=60), st.data())
def test_whatever_was_left_by_an_earlier_host_costs_no_frame(bodies, noise, data):
    """Half a frame (or anything at all), then a new host: all its frames arrive, and nothing else does."""
    torn = agent_wire.frame(1, 7, data.draw(BODIES)[0])
    remaining = (
        noise + torn[: data.draw(st.integers(0, len(torn) - 3))]
    )  # one byte less could be an escape's second, and all would be there
    frames = agent_wire.FrameDecoder()
    frames.feed(remaining)
    collected = []
    for number, body in enumerate(bodies):
        collected += frames.feed(agent_wire.frame(2, number, body))
    assert collected == [(2, number, body) for number, body in enumerate(bodies)]


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_changed_byte_never_makes_another_frame(body, data):
    complete = bytearray(agent_wire.frame(5, 6, body))
    at = data.draw(st.integers(1, len(complete) - 2))
    complete[at] ^= data.draw(st.integers(1, 255))
    assert [result for result in agent_wire.FrameDecoder().feed(bytes(complete)) if result != (5, 6, body)] == []


def test_endless_noise_is_thrown_away(monkeypatch):
    monkeypatch.setattr(agent_wire, "_MAX_FRAME_BYTES", 1000)
    frames = agent_wire.FrameDecoder()
    for _ in range(10):
        assert frames.feed(b"x" * 300) == []
        assert len(frames._rest) <= 1300
    assert frames.feed(agent_wire.frame(1, 2, b"after")) == [(1, 2, b"after")]
