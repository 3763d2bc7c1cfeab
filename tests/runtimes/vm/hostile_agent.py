"""Agent of a guest whose root user attacks the host: ``python hostile_agent.py SOCKET ATTACK``.

It answers pings as an agent does, so that the host connects, and any other call with its attack.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator

from pgherd.runtimes.vm.agent_wire import CHUNK_BYTES, FrameDecoder, decode, encode, frame

MB = 1 << 20
ESCAPES = b"\x1b]0;owned\x07\x1b[2J"


def _answers(attack: str, operation: bytes, session: int, number: int) -> Iterator[bytes]:
    def ok(value: object) -> bytes:
        return frame(session, number, encode([b"ok", value]))

    if attack.startswith("names"):
        name = {"names": b"../../escaped", "names-absolute": b"/tmp/escaped", "names-nul": b"a\0b"}[attack]
        yield ok([name] if operation == b"list" else name)
    elif attack.startswith("type"):
        yield ok({"type-list": [[b"x"], 1], "type-bytes": b"x", "type-number": 7, "type-numbers": [1, 2, 3, 4]}[attack])
    elif attack == "endless":
        while True:
            yield b"x" * MB
    elif attack == "nested":
        yield frame(session, number, b"l" * (60 * MB))
    elif attack == "values":
        yield frame(session, number, b"l2:okl" + b"le" * (25 * MB) + b"ee")
    elif attack == "digits":
        yield frame(session, number, b"l2:okli" + b"9" * 4000 + b"ei" + b"9" * 4000 + b"e4:aaaae")
    elif attack == "large-numbers":
        yield ok([10**250, 10**250, b"x", b"y"] if operation == b"run" else [10**250, 10**250] if operation == b"spawn" else 10**250)
    elif attack == "length":
        yield frame(session, number, b"l2:ok999999999999999999:xe")
    elif attack == "control":
        yield frame(session, number, encode([b"os", 5, ESCAPES + b"x" * (20 * MB), b"/" + ESCAPES]))
    elif attack == "control-bad":
        yield frame(session, number, encode([b"bad", ESCAPES + b"x" * (20 * MB)]))
    elif attack == "events":
        yield from (
            b"".join(frame(session, 0, encode([b"ended", n, 0, 10**250])) for n in range(at, at + 1000)) for at in range(0, 300_000, 1000)
        )
        yield ok([1, 2] if operation == b"spawn" else 1)
    elif attack == "chunks":
        yield ok([1, 0, b"x" * CHUNK_BYTES] if operation == b"fetch" else 1 if operation in (b"sample", b"size") else b"x" * CHUNK_BYTES)
    elif attack == "fetch":
        yield ok([1, 0, b""] if operation == b"fetch" else 1)
    elif attack == "noise":
        yield os.urandom(20 * MB)


def main(path: str, attack: str) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    os.chmod(path, 0o777)
    server.listen(1)
    connection = server.accept()[0]
    frames = FrameDecoder()
    with contextlib.suppress(OSError):
        while data := connection.recv(1 << 18):
            for session, number, body in frames.feed(data):
                operation = decode(body)[0]
                if operation == b"ping":
                    connection.sendall(frame(session, number, encode([b"ok", [time.time_ns(), time.time_ns()]])))
                    continue
                for piece in _answers(attack, operation, session, number):
                    connection.sendall(piece)


if __name__ == "__main__":
    main(*sys.argv[1:])
