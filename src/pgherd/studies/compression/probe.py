"""The probe 'compression': segments of a kind of data, compressed block by block.

It is asked (``Trial.asked``): ``codecs`` and ``blocks`` (lists with commas), ``samples`` and ``seed``, ``form`` (plain or encrypted), and
for the user's own data ``dsn`` or ``directory``; ``filesystem`` is a directory on a file system that compresses by itself. The
readings are named as pgherd.studies.compression.readings says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pgherd.model.errors import TrialError
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.postgres import clones, golden
from pgherd.postgres.external import External
from pgherd.postgres.installations import Installation
from pgherd.postgres.relations import Query, Relations
from pgherd.runner.observer import RunObserver
from pgherd.runner.session import RunSession
from pgherd.studies.compression import probe_codecs, probe_segments
from pgherd.studies.compression.options import ENCRYPTED, FILE_SYSTEM, SECTOR
from pgherd.studies.compression.probe_file_system import Compressing
from pgherd.studies.compression.probe_segments import Part
from pgherd.workloads.registry import fillings

FORBIDDEN = (
    "{dsn}: this user may not read the relations' files; as a superuser there run: GRANT EXECUTE ON FUNCTION "
    "pg_read_binary_file(text, bigint, bigint, boolean) TO the user (and GRANT pg_read_server_files TO it, where tablespaces lie elsewhere)"
)


def measure(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> dict[str, float]:
    """Compress the chosen segments of the trial's data in every asked way.

    Raises:
        TrialError: the data cannot be read.
        CapabilityError: a library is missing.
        UsageError: there is no such codec, or no connection to the user's database.
    """
    asked = trial.asked
    packers = {name: probe_codecs.codec(name) for name in asked["codecs"].split(",")}
    blocks = [int(word) for word in asked["blocks"].split(",")]
    with contextlib.ExitStack() as stack:
        parts = stack.enter_context(_parts(session, installations, trial, watcher))
        own = stack.enter_context(Compressing(session, asked["filesystem"])) if "filesystem" in asked else None
        readings = dict(probe_segments.raw_readings(parts))
        for part in parts:
            watcher.setup(f"compressing {part.name}, {trial.point.get('kind')}, {asked['form']}")
            numbers = probe_segments.chosen(parts, int(asked["samples"]), int(asked["seed"]))[part.name]
            for number, data in part.read(numbers):
                interruption.insist()
                if asked["form"] == ENCRYPTED:
                    data = probe_codecs.encrypt(data)
                readings[f"raw_bytes/{number}/{part.name}"] = float(len(data))
                for name, pack in packers.items():
                    for block in blocks:
                        exact, stored = probe_codecs.compressed(pack, data, block, SECTOR)
                        readings[f"compressed_bytes/{name}/{block}/{number}/{part.name}"] = float(exact)
                        readings[f"stored_bytes/{name}/{block}/{number}/{part.name}"] = float(stored)
                if own is not None:
                    own.write(f"{number}/{part.name}", data)
        for name, size in own.sizes().items() if own is not None else ():
            readings[f"compressed_bytes/{FILE_SYSTEM}/0/{name}"] = readings[f"stored_bytes/{FILE_SYSTEM}/0/{name}"] = size
        return readings


@contextlib.contextmanager
def _parts(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> Iterator[Sequence[Part]]:
    """The trial's data, readable while the context lasts."""
    import psycopg

    asked = trial.asked
    try:
        if "directory" in asked:
            yield probe_segments.of_directory(asked["directory"])
        elif "dsn" in asked:
            passfile = str(session.work / "passfile-compression")
            server = External(session.node, asked["dsn"], name="dsn", passfile=passfile, account=session.account)
            try:
                yield _of_database(server.sql, asked["dsn"])
            finally:
                server.disconnect()
        else:
            with _own(session, installations, trial, watcher) as query:
                yield _of_database(query, "the server")
    except psycopg.Error as error:
        raise TrialError(f"the data cannot be read: {str(error).strip()}") from None


def _of_database(query: Query, where: str) -> list[Part]:
    relations = Relations(query)
    if not relations.all:
        raise TrialError(f"{where}: the database holds no table with a row in it")
    if not relations.readable:
        raise TrialError(FORBIDDEN.format(dsn=where))
    return probe_segments.of_relations(relations)


@contextlib.contextmanager
def _own(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> Iterator[Query]:
    """A server on a throw-away clone of the golden copy."""
    _, _, server = next(iter(trial.deployment.servers()))
    installation, node = installations[server.bin], session.node
    sockets = str(session.sockets / "golden")
    node.make_dir(sockets, mode=0o700, user=session.account)
    contents = fillings(node, server.databases)
    copy = golden.ensure(
        node,
        installation,
        contents,
        account=session.account,
        cache_dir=str(session.cache),
        socket_dir=sockets,
        checksums=server.checksums,
        say=watcher.setup,
    )
    directory = str(session.work)
    with clones.rehearsal(node, copy, installation, account=session.account, directory=directory, socket_dir=sockets) as instance:
        yield partial(_query, instance, server.databases[0].name)


def _query(instance: Any, database: str, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = instance.sql(statement, parameters, database=database)
    return found
