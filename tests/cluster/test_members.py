"""Which workers are hosts, and in which order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from pgherd.cluster import members
from pgherd.cluster.address import Place
from pgherd.model.errors import UsageError


def _client(*workers):
    async def identity(n_workers):
        return {"workers": {f"tls://{host}:{port}": {"host": host, "name": name} for host, port, name in workers}}

    return SimpleNamespace(scheduler=SimpleNamespace(identity=identity))


def test_several_workers_of_one_machine_are_one_host():
    client = _client(("10.0.0.1", 1, "a"), ("10.0.0.2", 1, "tls://10.0.0.2:1"), ("10.0.0.1", 2, "a2"), ("10.0.0.3", 1, 7))
    found = asyncio.run(members.there(client))
    assert [(one.host, one.worker) for one in found] == [
        ("a", "tls://10.0.0.1:1"),
        ("10.0.0.2", "tls://10.0.0.2:1"),
        ("10.0.0.3", "tls://10.0.0.3:1"),
    ]
    assert len(asyncio.run(members.there(client, each=True))) == 4


def test_the_clusters_order_and_who_is_missing():
    found = asyncio.run(members.there(_client(("10.0.0.1", 1, "b"), ("10.0.0.2", 1, "a"))))
    assert [one.host for one in members.ordered(found, Place("tls://x:1"))] == ["a", "b"]
    ordered = members.ordered(found, Place("tls://x:1", None, ("b", "c", "a")))
    assert [(one.host, one.why is None) for one in ordered] == [("b", True), ("c", False), ("a", True)]
    assert ordered[1].gone.is_set() and "has not joined" in (ordered[1].why or "")


def test_a_cluster_without_workers_is_told_how_to_get_one():
    with pytest.raises(UsageError, match=r"no worker has joined tls://x:1; start one on each host: 'dask worker tls://x:1"):
        members.ordered([], Place("tls://x:1"))
