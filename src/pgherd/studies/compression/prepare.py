"""Completion of a compression request: the kinds of data, read access, and the codecs."""

from __future__ import annotations

import os
import random
import re

from pgherd.host import paths
from pgherd.host.facts import gather
from pgherd.host.server_user import require_initdb, server_account
from pgherd.model.analysis import Thresholds
from pgherd.model.deployment import Database
from pgherd.model.errors import UsageError
from pgherd.model.run import RunEnvironment
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import disk_space, external_server, installations, templates
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.studies.compression import probe
from pgherd.studies.compression.options import (
    KINDS,
    POSSIBLE_BLOCK_SIZES,
    SCALES,
    SEGMENT,
    CompressionOptions,
    CompressionRequest,
    DataKind,
)
from pgherd.workloads.registry import loaders

MEMORY = 512 * 2**20
"""Memory in bytes of a server during the load, and of the compression of a segment."""


def prepare(node: Node, request: CompressionRequest, dry: bool) -> PreparedStudy:
    """Complete a compression request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    kinds, sizes = _kinds(request), _blocks(request.block_sizes)
    for name in request.codecs:
        probe.require_codec(name)
    realistic = any(kind.workload == "realistic" for kind in kinds)
    facts = gather(node)
    account = server_account(request.run_as)
    require_initdb(account)
    cache = paths.cache_dir()
    generated = [kind for kind in kinds if kind.workload is not None]
    installation = installations.choose(node, request.pg_bin, request.pg_version) if generated else None
    choices = [] if installation is None else [f"PostgreSQL {installation.version} ({installation.kind}) from {installation.bin}."]
    need = 0
    if generated:
        contents = [loaders(node, [Database(workload=str(kind.workload), scale=kind.scale)], {}) for kind in generated]
        # All templates stay, and the largest one is cloned.
        need = sum(map(templates.needed_bytes, contents)) + max(map(templates.needed_bytes, contents))
        disk_space.check_space(node, str(cache / templates.DIRECTORY), need, f"databases of {', '.join(kind.name for kind in generated)}")
    for kind in kinds:
        if kind.dsn is not None:
            server = external_server.read_database_info(kind.dsn, option="--dsn")
            choices.append(f"Database {server.database} of PostgreSQL {server.version} ({format_bytes(server.bytes)}) is only read.")
        if kind.directory is not None:
            choices.append(f"Directory {kind.directory} is only read.")
    changes = (
        [f"loaded databases in {cache / templates.DIRECTORY} (they stay there)", f"a clone of one of them in {cache / 'work'}"]
        if generated
        else []
    )
    if request.filesystem is not None:
        file_system = probe.require_compressing(node, request.filesystem)
        choices.append(f"{request.filesystem} is on {file_system}; its result depends on the compression settings of the file system.")
        size = format_bytes(request.segments * SEGMENT)
        changes.append(f"a private directory below {request.filesystem} with up to about {size}, removed after each trial")
    memory = min(MEMORY, facts.memory)
    return PreparedStudy(
        study="compression",
        options=CompressionOptions(
            data=kinds,
            codecs=request.codecs,
            block_sizes=sizes,
            segments=request.segments,
            encrypt=request.encrypt,
            filesystem=None if request.filesystem is None else os.path.abspath(request.filesystem),
            pg_bin="" if installation is None else installation.bin,
            pg_version="" if installation is None else installation.version,
            seed=request.seed if request.seed is not None else random.randrange(2**31),
            time_budget=request.time_budget,
        ),
        environment=RunEnvironment(runtime="process", run_as=account, cores=min(1.0, facts.cores), memory=memory),
        thresholds=Thresholds(),
        facts=facts,
        installation=installation,
        defaults_chosen=tuple(choices),
        settings=(),
        host_changes=tuple(changes),
        disk=need,
        memory=memory,
        tools=probe.versions(request.codecs, encrypts=request.encrypt, realistic=realistic),
    )


def _kinds(request: CompressionRequest) -> tuple[DataKind, ...]:
    if not request.codecs:
        raise UsageError("--codecs names no codec; give one, such as lz4")
    kinds = [] if request.data == ("none",) else [_kind(word) for word in request.data]
    if request.dsn is not None:
        kinds.append(DataKind(name="database", dsn=external_server.normalize_dsn(request.dsn, "--dsn")))
    if request.dir is not None:
        directory = os.path.abspath(request.dir)
        if not os.path.isdir(directory):
            raise UsageError(f"--dir {request.dir}: the directory does not exist; give an existing one")
        if not os.access(directory, os.R_OK | os.X_OK):
            raise UsageError(f"--dir {request.dir} cannot be read; run pgherd as a user with read access")
        kinds.append(DataKind(name="directory", directory=directory))
    twice = {kind.name for kind in kinds if sum(other.name == kind.name for other in kinds) > 1}
    if twice:
        raise UsageError(f"--data names {', '.join(sorted(twice))} more than once; give each kind of data once")
    if not kinds:
        raise UsageError("there is no data to compress; give --data, --dsn or --dir")
    return tuple(kinds)


def _blocks(words: tuple[str, ...]) -> tuple[int, ...]:
    sizes = tuple(parse_bytes(word) for word in words)
    wrong = [word for word, size in zip(words, sizes, strict=True) if size not in POSSIBLE_BLOCK_SIZES]
    if wrong or not words:
        raise UsageError(
            f"--block-sizes: a block is a power of two from 512 bytes to 1 MB, such as 8k, not {', '.join(wrong) or 'nothing'}"
        )
    return sizes


def _kind(word: str) -> DataKind:
    match = re.fullmatch(r"([a-z]+)(?:@([1-9]\d{0,6}))?", word)
    if not match or match[1] not in KINDS:
        raise UsageError(f"--data: '{word}' is not a kind of data; use {', '.join(KINDS)}, each with an optional @SCALE, or none")
    return DataKind(name=match[1], workload=match[1], scale=int(match[2] or SCALES[match[1]]))
