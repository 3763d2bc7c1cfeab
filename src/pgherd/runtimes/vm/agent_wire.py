"""What goes over the line between the host and a guest's agent, for both ends.

It runs inside the guest beside ``agent``, and is as poor as that in what it imports.

**Frames.** A serial port has no end of file, and a host may vanish in the middle of a frame and come back; a length would then be
counted from anywhere. So a frame lies between delimiters that cannot occur inside it (SLIP, RFC 1055), the first of which ends whatever was
left of an older frame. Inside: session (8 bytes), number (4), body, CRC-32 of all that (4); what does not check is dropped. A host draws
its session at random and answers bear it, so that nobody takes those to an earlier host for his.

**Bodies** are bencoded (BEP 3). A request is ``[operation, arguments…]``, an answer ``[b"ok", value]``, ``[b"os", errno, text, path]``,
``[b"late", seconds]`` or ``[b"bad", text]``; number 0 is an event: ``[b"ended", serial, code, CPU in µs]``. Instants are in ns.
"""

from __future__ import annotations

from binascii import crc32
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_END, _ESCAPE = b"\xc0", b"\xdb"
_ESCAPED_END, _ESCAPED_ESCAPE = b"\xdb\xdc", b"\xdb\xdd"
_HEAD, _CHECK = Struct("<QI"), Struct("<I")
_LONGEST = 64 << 20
PIECE = 1 << 20  # bytes of a file, or of readings, that go over the line at once


def encode(value: Any) -> bytes:
    """Bencode integers, bytes, and lists or tuples of them; raises TypeError for anything else."""
    if isinstance(value, bytes):
        return b"%d:%b" % (len(value), value)
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, list | tuple):
        return b"l%be" % b"".join([encode(one) for one in value])
    raise TypeError(f"{type(value).__name__} has no place in a frame")


def decode(data: bytes) -> Any:
    """The inverse of ``encode``; raises ValueError for what it does not give."""
    stack: list[list[Any]] = []
    at = 0
    value: Any
    while True:
        kind = data[at : at + 1]
        if kind == b"l":
            stack.append([])
            at += 1
            continue
        if kind == b"e":
            if not stack:
                raise ValueError("a list ends that has not begun")
            value = stack.pop()
            at += 1
        elif kind == b"i":
            end = data.index(b"e", at)
            value = int(data[at + 1 : end])
            at = end + 1
        else:
            colon = data.index(b":", at)
            size = data[at:colon]
            if not size.isdigit():
                raise ValueError(f"{size[:20]!r} is no length")
            at = colon + 1 + int(size)
            if at > len(data):
                raise ValueError(f"{at - len(data)} bytes are missing")
            value = data[colon + 1 : at]
        if not stack:
            if at != len(data):
                raise ValueError(f"{len(data) - at} bytes too many")
            return value
        stack[-1].append(value)


def frame(session: int, number: int, body: bytes) -> bytes:
    """One frame as it goes over the line."""
    plain = _HEAD.pack(session, number) + body
    plain += _CHECK.pack(crc32(plain))
    return _END + plain.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_END, _ESCAPED_END) + _END


class Frames:
    """Cuts a stream of bytes into frames; noise and torn frames vanish."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """(session, number, body) of each frame that these bytes complete."""
        self._rest += data
        if _END not in data:
            if len(self._rest) > _LONGEST:
                self._rest.clear()
            return []
        *whole, rest = self._rest.split(_END)
        self._rest = rest
        found = []
        for one in whole:
            plain = bytes(one).replace(_ESCAPED_END, _END).replace(_ESCAPED_ESCAPE, _ESCAPE)
            body = plain[: -_CHECK.size]
            if len(body) >= _HEAD.size and _CHECK.unpack(plain[-_CHECK.size :])[0] == crc32(body):
                session, number = _HEAD.unpack_from(body)
                found.append((session, number, body[_HEAD.size :]))
        return found
