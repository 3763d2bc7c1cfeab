"""Wire format between the host and a guest's agent, for both ends.

The module runs inside the guest next to ``agent`` and has the same limits on imports.

**Frames.** A serial port has no end of file, and a host may disappear in the middle of a frame and return. A length prefix would then be
read at a wrong position. A frame is therefore enclosed in delimiters that cannot occur inside it (SLIP, RFC 1055). The first delimiter
ends the remains of an older frame. Content: session (8 bytes), number (4), body, CRC-32 of all that (4). A frame with a wrong CRC is
dropped. A host draws its session at random, and answers contain it, so that a host ignores answers to an earlier host.

**Bodies** are bencoded (BEP 3). A request is ``[operation, arguments…]``. An answer is ``[b"ok", value]``, ``[b"os", errno, text, path]``,
``[b"late", seconds]`` or ``[b"bad", text]``. Number 0 is an event: ``[b"ended", serial, code, CPU in µs]``. Instants are in ns.
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
_MAX_FRAME_BYTES = 64 << 20
_MAX_VALUES = 1_000_000  # in one body: each takes far more memory than its two bytes
_MAX_DIGITS = 300  # a longer one is out of the range of a float
CHUNK_BYTES = 1 << 20  # maximum bytes of a file or of readings in one answer


def encode(value: Any) -> bytes:
    """Bencode integers, bytes, and lists or tuples of them. Raises TypeError for other types."""
    if isinstance(value, bytes):
        return b"%d:%b" % (len(value), value)
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, list | tuple):
        return b"l%be" % b"".join([encode(item) for item in value])
    raise TypeError(f"{type(value).__name__} cannot be encoded")


def decode(data: bytes) -> Any:
    """Return the inverse of ``encode``. Raises ValueError for other input."""
    stack: list[list[Any]] = []
    at = count = 0
    value: Any
    while True:
        count += 1
        if count > _MAX_VALUES:
            raise ValueError(f"more than {_MAX_VALUES} values")
        kind = data[at : at + 1]
        if kind == b"l":
            stack.append([])
            at += 1
            continue
        if kind == b"e":
            if not stack:
                raise ValueError("unexpected end of a list")
            value = stack.pop()
            at += 1
        elif kind == b"i":
            end = data.index(b"e", at)
            if end - at - 1 > _MAX_DIGITS:
                raise ValueError(f"a number of more than {_MAX_DIGITS} digits")
            value = int(data[at + 1 : end])
            at = end + 1
        else:
            colon = data.index(b":", at)
            size = data[at:colon]
            if not size.isdigit() or len(size) > _MAX_DIGITS:
                raise ValueError(f"{size[:20]!r} is not a length")
            at = colon + 1 + int(size)
            if at > len(data):
                raise ValueError(f"{at - len(data)} bytes missing")
            value = data[colon + 1 : at]
        if not stack:
            if at != len(data):
                raise ValueError(f"{len(data) - at} bytes too many")
            return value
        stack[-1].append(value)


def frame(session: int, number: int, body: bytes) -> bytes:
    """Return one encoded frame."""
    plain = _HEAD.pack(session, number) + body
    plain += _CHECK.pack(crc32(plain))
    return _END + plain.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_END, _ESCAPED_END) + _END


class FrameDecoder:
    """Decoder of a byte stream into frames. It skips noise and torn frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Return (session, number, body) of each frame that these bytes complete."""
        self._rest += data
        if _END not in data:
            if len(self._rest) > _MAX_FRAME_BYTES:
                self._rest.clear()
            return []
        *frames, remainder = self._rest.split(_END)
        self._rest = remainder
        decoded = []
        for encoded in frames:
            plain = bytes(encoded).replace(_ESCAPED_END, _END).replace(_ESCAPED_ESCAPE, _ESCAPE)
            body = plain[: -_CHECK.size]
            if len(body) >= _HEAD.size and _CHECK.unpack(plain[-_CHECK.size :])[0] == crc32(body):
                session, number = _HEAD.unpack_from(body)
                decoded.append((session, number, body[_HEAD.size :]))
        return decoded
