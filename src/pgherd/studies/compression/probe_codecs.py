"""Codecs and encryption of data in memory, by their Python libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from pgherd.model.errors import UsageError

_PAGE_BYTES = 8192
"""Unit of encryption. Databases encrypt each page separately."""

_MAX_ZSTD_LEVEL = 22

Codec = Callable[[bytes], int]
"""Function from a block to its compressed size in bytes, at most the block's size because storage keeps such blocks uncompressed."""


def require_codec(name: str) -> None:
    """Require a known codec. Raises UsageError."""
    level = re.fullmatch(r"zstd-(\d{1,2})", name)
    if name != "lz4" and not (level and 1 <= int(level[1]) <= _MAX_ZSTD_LEVEL):
        raise UsageError(f"unknown codec '{name}'; use lz4 or zstd-LEVEL with a level of 1 to {_MAX_ZSTD_LEVEL}, such as zstd-3")


def codec(name: str) -> Codec:
    """Return the codec lz4 (block format, default acceleration) or zstd-LEVEL (frames without checksum and size).

    Raises UsageError if the codec is unknown.
    """
    require_codec(name)
    if name == "lz4":
        import lz4.block

        return lambda block: min(len(block), len(lz4.block.compress(block, store_size=False)))
    import zstandard

    compressor = zstandard.ZstdCompressor(level=int(name.removeprefix("zstd-")), write_content_size=False, write_checksum=False)
    return lambda block: min(len(block), len(compressor.compress(block)))


def encrypt(data: bytes) -> bytes:
    """Encrypt data like a database with encrypted pages: AES-256 in counter mode, with a separate nonce for each 8 kB page.

    The key is discarded.
    """
    from cryptography.hazmat.primitives import ciphers

    key = os.urandom(32)
    pages = []
    for start in range(0, len(data), _PAGE_BYTES):
        encryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(os.urandom(16))).encryptor()
        pages.append(encryptor.update(data[start : start + _PAGE_BYTES]) + encryptor.finalize())
    return b"".join(pages)


def compressed_sizes(compress: Codec, data: bytes, block: int, sector: int) -> tuple[int, int]:
    """Return the size of the data after compression in blocks of ``block`` bytes, and the same with blocks rounded up to sectors.

    A rounded block never takes more than the uncompressed one.
    """
    view, exact, stored = memoryview(data), 0, 0
    for start in range(0, len(data), block):
        piece = bytes(view[start : start + block])
        size = compress(piece)
        exact += size
        stored += min(-(-size // sector) * sector, -(-len(piece) // sector) * sector)
    return exact, stored


def versions(codecs: Sequence[str], *, encrypts: bool, realistic: bool) -> dict[str, str]:
    """Return package → version of the libraries that a run uses."""
    from importlib.metadata import version

    packages = {"lz4" if name == "lz4" else "zstandard" for name in codecs}
    packages |= {name for name, used in (("cryptography", encrypts), ("mimesis", realistic)) if used}
    return {package: version(package) for package in sorted(packages)}
