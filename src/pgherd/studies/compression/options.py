"""The complete options of a compression run, and the deployment of one kind of data."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pgherd.model.base import Model
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.units import format_bytes
from pgherd.study.complete_options import StudyOptions
from pgherd.study.measurement_options import SampleRequest
from pgherd.study.option import option

SEGMENT = 2**20
"""Bytes of a segment: what is sampled. Blocks of every size are cut from the same segments."""

SECTOR = 4096
"""Bytes that a file system hands out at least: what a compressed block takes is rounded up to them."""

KINDS = ("pgbench", "orders", "realistic")
"""Data that pgherd makes: machine-made filler, order entry, and values as they are found in life."""

SCALES = {"pgbench": 10, "orders": 1, "realistic": 100}
"""Kind → the scale of its database: 150 MB, 130 MB and 50 MB."""

CODECS = ("lz4", "zstd-1", "zstd-3", "zstd-9")
BLOCKS = (4096, 8192, 16384, 32768, 131072, 1048576)
SAMPLES = 48

FILE_SYSTEM = "file-system"
"""Stands for a codec where a file system has compressed by itself."""

PLAIN, ENCRYPTED = "plain", "encrypted"


POSSIBLE_BLOCKS = tuple(512 << power for power in range(12))
"""Powers of two from 512 bytes to a segment."""


def _blocks(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes or any(size not in POSSIBLE_BLOCKS for size in sizes):
        wrong = ", ".join(format_bytes(size) for size in sizes)
        raise ValueError(f"a block is a power of two from 512 bytes to 1 MB, not {wrong or 'nothing'}")
    return tuple(sorted(set(sizes)))


BlockSizes = Annotated[tuple[int, ...], AfterValidator(_blocks)]
"""Bytes, ascending and without repetition."""


class DataKind(Model):
    """One kind of data: made by a workload of pgherd's (``workload`` and ``scale``), a database of the user's (``dsn``) or a
    directory (``directory``). ``name`` is the kind's name in tables."""

    name: str
    workload: str | None = None
    scale: int = Field(1, ge=1)
    dsn: str | None = None
    directory: str | None = None


class CompressionOptions(StudyOptions):
    """Everything that a compression run depends on. ``samples`` are segments of each kind; ``seed`` chooses them.

    ``pg_bin`` is empty where no server of pgherd's own is used.
    """

    sources: tuple[DataKind, ...]
    codecs: tuple[str, ...] = CODECS
    blocks: BlockSizes = BLOCKS
    samples: int = Field(SAMPLES, ge=4)
    encrypt: bool = True
    filesystem: str | None = None
    pg_bin: str = ""
    pg_version: str = ""
    seed: int = 1

    @property
    def headline(self) -> tuple[str, int]:
        """The codec and block size of the figures that stand in the answer: the first codec, 32 kB or else the middle size."""
        return self.codecs[0], 32768 if 32768 in self.blocks else self.blocks[len(self.blocks) // 2]

    @property
    def forms(self) -> tuple[str, ...]:
        """In which forms each kind is compressed."""
        return (PLAIN, ENCRYPTED) if self.encrypt else (PLAIN,)


def deployment(options: CompressionOptions, source: DataKind) -> Deployment:
    """What holds this kind of data: a server of pgherd's own, or only this host."""
    if source.workload is None:
        return Deployment(hosts=(Host(),))
    server = Server(bin=options.pg_bin, version=options.pg_version, databases=(Database(workload=source.workload, scale=source.scale),))
    return Deployment(hosts=(Host(containers=(Container(name="db01", servers=(server,)),)),))


SIZES = ("4k", "8k", "16k", "32k", "128k", "1M")


class CompressionRequest(SampleRequest):
    """Options of ``pgherd compression`` as given on the command line or in a scenario. None: pgherd chooses."""

    data: tuple[str, ...] = option(KINDS, "Generated data to test.", metavar="KIND[@SCALE],…|none", web=True)
    dsn: str | None = option(None, "Database to sample; read only.", metavar="DSN")
    dir: str | None = option(None, "Directory to sample; read only.", metavar="DIR")
    codecs: tuple[str, ...] = option(CODECS, "Codecs: lz4, zstd-LEVEL.", metavar="CODEC,…", web=True)
    block_sizes: tuple[str, ...] = option(SIZES, "Block sizes, each compressed separately.", metavar="SIZE,…", web=True)
    segments: int = option(SAMPLES, "1 MB segments to read per kind of data.", metavar="N", web=True, filled="16", ge=4)
    encrypt: bool = option(True, "Also test encrypted data.")
    filesystem: str | None = option(None, "Also write to this btrfs or ZFS directory.", metavar="DIR")
    seed: int | None = option(None, "Seed for the choice of segments.", metavar="N", computed="random", web=True)
