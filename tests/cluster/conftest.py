"""A small cluster on loopback for the tests of its parts: a scheduler and two workers of ours in one thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The scheduler's address; its hosts are ``left`` (127.0.0.2) and ``right`` (127.0.0.3). The driver finds its certificates."""
    from pgherd.cluster import certificates, scheduler_address

    directory = tmp_path_factory.mktemp("certificates")
    made = certificates.authority("loopback")
    certificates.write_private(directory / certificates.AUTHORITY, made.certificate)
    certificates.write_private(directory / certificates.MEMBER, made.issue("member"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(scheduler_address.TLS_DIRECTORY, str(directory))
        with _cluster(tmp_path_factory, directory) as address:
            yield address


@contextlib.contextmanager
def _cluster(tmp_path_factory: pytest.TempPathFactory, tls: Path) -> Iterator[Any]:
    scratch = tmp_path_factory.mktemp("scratch")
    ready, done = threading.Event(), threading.Event()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: asyncio.run(_serve(scratch, tls, found, ready, done)), name="loopback")
    thread.start()
    try:
        assert ready.wait(60), "the scheduler on loopback did not come up"
        if isinstance(found[0], BaseException):
            raise found[0]
        yield found[0]
    finally:
        done.set()
        thread.join(60)


async def _serve(scratch: Path, tls: Path, found: list[Any], ready: threading.Event, done: threading.Event) -> None:
    from pgherd.cluster import dask_servers, dask_settings, scheduler_address

    dask_settings.configure()
    try:
        security = scheduler_address.member_security(tls)
        scheduler = await dask_servers.scheduler(security, listen="127.0.0.1")
        hosts = (("left", "127.0.0.2"), ("right", "127.0.0.3"))
        workers = [await dask_servers.worker(scheduler.address, name, security, str(scratch / name), listen=where) for name, where in hosts]
        found.append(scheduler.address)
    except BaseException as error:
        found.append(error)
        raise
    finally:
        ready.set()
    while not done.is_set():
        await asyncio.sleep(0.05)
    for worker in workers:
        await worker.close(timeout=2)
    await scheduler.close()
