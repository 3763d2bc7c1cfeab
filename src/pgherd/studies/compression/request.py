"""What a user may say of a compression study; everything has a default."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.base import Model
from pgherd.studies.compression.options import CODECS, KINDS, SAMPLES

SIZES = ("4k", "8k", "16k", "32k", "128k", "1M")


class CompressionRequest(Model):
    """Options of ``pgherd compression`` as given on the command line or in a scenario. None: pgherd chooses, and says what."""

    kinds: tuple[str, ...] = Field(KINDS, description="data that pgherd makes, KIND or KIND@SCALE: pgbench, orders, realistic; or 'none'")
    dsn: str | None = Field(None, description="a database of yours, by its DSN; it is only read")
    directory: str | None = Field(None, description="a directory of yours; it is only read")
    codecs: tuple[str, ...] = Field(CODECS, description="lz4, or zstd-LEVEL (1 to 22)")
    blocks: tuple[str, ...] = Field(SIZES, description="sizes of the blocks that are compressed each for itself")
    samples: int = Field(SAMPLES, ge=4, description="segments of 1 MB to read of each kind")
    encrypt: bool = Field(True, description="compress the same data encrypted first, too")
    filesystem: str | None = Field(None, description="a directory on a file system that compresses, to see what it gives")
    seed: int | None = Field(None, description="seed of the choice of segments")
    pg_bin: str | None = Field(None, description="directory of postgres, initdb and pgbench")
    pg_version: str | None = Field(None, description="PostgreSQL major version to use, such as 17, or 'embedded'")
    run_as: str | None = Field(None, description="the account that servers run as (root only)")
