"""Codecs and encryption of data in memory, by their Python libraries."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Sequence
from types import ModuleType

from pgherd.host.libraries import missing_libraries
from pgherd.model.errors import UsageError

PAGE = 8192
"""Bytes that are encrypted each for itself, as databases encrypt their pages."""

MOST_ZSTD = 22

Codec = Callable[[bytes], int]
"""Bytes that a block takes when compressed; never more than it has, since a block that does not shrink is stored as it is."""


def require(*modules: str) -> None:
    """Insist on these libraries; raises CapabilityError with the command that installs them."""
    for module in modules:
        _library(module)


def check(name: str) -> None:
    """Whether there is such a codec; raises UsageError."""
    level = re.fullmatch(r"zstd-(\d{1,2})", name)
    if name != "lz4" and not (level and 1 <= int(level[1]) <= MOST_ZSTD):
        raise UsageError(f"there is no codec '{name}'; there are lz4 and zstd-LEVEL, with levels 1 to {MOST_ZSTD}, such as zstd-3")


def library_of(name: str) -> str:
    """The module that a codec needs."""
    return "lz4.block" if name == "lz4" else "zstandard"


def codec(name: str) -> Codec:
    """The codec of that name: lz4 (its block format, default acceleration), or zstd-LEVEL (frames without checksum and size).

    Raises:
        UsageError: there is none.
        CapabilityError: its library is not installed.
    """
    check(name)
    library = _library(library_of(name))
    if name == "lz4":
        return lambda block: min(len(block), len(library.compress(block, store_size=False)))
    packer = library.ZstdCompressor(level=int(name.removeprefix("zstd-")), write_content_size=False, write_checksum=False)
    return lambda block: min(len(block), len(packer.compress(block)))


def encrypt(data: bytes) -> bytes:
    """The data as a database that encrypts its pages would store it: AES-256 in counter mode, each page of 8 kB with a nonce
    of its own. The key is thrown away.

    Raises:
        CapabilityError: the library is not installed.
    """
    ciphers = _library("cryptography.hazmat.primitives.ciphers")
    key = os.urandom(32)
    parts = []
    for start in range(0, len(data), PAGE):
        encryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(os.urandom(16))).encryptor()
        parts.append(encryptor.update(data[start : start + PAGE]) + encryptor.finalize())
    return b"".join(parts)


def compressed(pack: Codec, data: bytes, block: int, sector: int) -> tuple[int, int]:
    """Bytes of the data after compression in blocks of ``block`` bytes, and the same with each block rounded up to sectors (but
    never above what the block takes uncompressed)."""
    view, exact, stored = memoryview(data), 0, 0
    for start in range(0, len(data), block):
        piece = bytes(view[start : start + block])
        size = pack(piece)
        exact += size
        stored += min(-(-size // sector) * sector, -(-len(piece) // sector) * sector)
    return exact, stored


def modules_for(codecs: Sequence[str], *, encrypts: bool, realistic: bool) -> list[str]:
    """The libraries that a run with these needs."""
    found = {library_of(name) for name in codecs}
    found |= {"cryptography.hazmat.primitives.ciphers"} if encrypts else set()
    return sorted(found | ({"mimesis"} if realistic else set()))


def _library(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing_libraries("compression", [module.partition(".")[0]]) from None


def versions(codecs: Sequence[str], *, encrypts: bool, realistic: bool) -> dict[str, str]:
    """Package → version of these libraries."""
    from importlib.metadata import version

    packages = {module.partition(".")[0] for module in modules_for(codecs, encrypts=encrypts, realistic=realistic)}
    return {package: version(package) for package in sorted(packages)}
