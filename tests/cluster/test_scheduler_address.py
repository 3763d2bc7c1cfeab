"""Which cluster is meant, and that nothing goes over a network in the clear."""

from __future__ import annotations

import os

import pytest

from pgherd.cluster import certificates, cluster_file, scheduler_address
from pgherd.cluster.cluster_file import AgentRecord, ClusterRecord
from pgherd.model.errors import UsageError


@pytest.mark.parametrize("text", ["tls://127.0.0.1:8786", "tls://10.0.0.1:8786", "tls://head:9"])
def test_these_addresses_will_do(text):
    scheduler_address.check(text)
    assert scheduler_address.find(text).address == text


@pytest.mark.parametrize(
    "text, why",
    [
        ("tcp://10.0.0.1:8786", "is not encrypted"),
        ("tcp://head.example:8786", "is not encrypted"),
        ("tcp://0.0.0.0:8786", "is not encrypted"),
        ("tls://10.0.0.1", "is not a Dask scheduler's address"),
        ("tls://10.0.0.1:99999", "is not a Dask scheduler's address"),
        ("http://10.0.0.1:8786", "is not a Dask scheduler's address"),
        ("tls://:8786", "is not a Dask scheduler's address"),
        ("somewhere", r"no cluster called 'somewhere' has been started here \(started: none\)"),
        ("../../etc", "no cluster called"),
    ],
)
def test_these_do_not(own_directories, text, why):
    with pytest.raises(UsageError, match=why):
        scheduler_address.find(text)


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("text", ["tcp://127.0.0.1:8786", "tcp://localhost:1", "tcp://[::1]:8786", "tcp://[::ffff:127.0.0.1]:1"])
def test_no_address_is_taken_where_any_user_may_listen(text, uid, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(UsageError, match="is not encrypted: .* on this machine each of its users, .*pgherd cluster start"):
        scheduler_address.find(text)
    with pytest.raises(UsageError, match="the worker .* is not encrypted"):
        scheduler_address.check_workers("tls://127.0.0.1:8786", ["tls://127.0.0.2:4", text])
    scheduler_address.check_workers("tls://127.0.0.1:8786", ["tls://127.0.0.2:4"])


def test_workers_have_tls_whatever_the_scheduler_s_address():
    """A scheduler's port may be forwarded here; workers are talked to directly all the same."""
    scheduler_address.check_workers("tls://127.0.0.1:8786", ["tls://127.0.0.2:4", "tls://10.0.0.1:4", "tls://[::1]:4"])
    with pytest.raises(UsageError, match=r"the worker tcp://10\.0\.0\.1:4 and 1 more of the scheduler tls://127\.0\.0\.1:8786 is not encr"):
        scheduler_address.check_workers("tls://127.0.0.1:8786", ["tls://127.0.0.2:4", "tcp://10.0.0.1:4", "tcp://10.0.0.2:4"])


def test_a_cluster_that_was_started_here_is_found_by_name_and_address(own_directories):
    agent = AgentRecord(name="root@a", pid=1, start=2, directory="/x", python="python3")
    cluster_file.make_directory("two")
    cluster_file.save(ClusterRecord(name="two", id="1", address="tls://10.0.0.1:4", pid=1, start=2, hosts=(agent,)))
    for cluster in ("two", "tls://10.0.0.1:4"):
        found = scheduler_address.find(cluster)
        assert found == scheduler_address.SchedulerAddress("tls://10.0.0.1:4", cluster_file.directory("two"), ("a",))
    with pytest.raises(UsageError, match=r"no cluster called 'default' has been started here \(started: two\)"):
        scheduler_address.find("default")


def test_tls_wants_certificates(own_directories, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"requires certificates.*PGHERD_CLUSTER_CERTS"):
        scheduler_address.security(scheduler_address.SchedulerAddress("tls://10.0.0.1:4"))
    with pytest.raises(UsageError, match=r"missing .*authority.pem and .*member.pem"):
        scheduler_address.security(scheduler_address.SchedulerAddress("tls://10.0.0.1:4", tmp_path))
    made = certificates.authority("x")
    (tmp_path / certificates.AUTHORITY).write_text(made.certificate)
    (tmp_path / certificates.MEMBER).write_text("no certificate")
    with pytest.raises(UsageError, match="cannot be used"):
        scheduler_address.security(scheduler_address.SchedulerAddress("tls://10.0.0.1:4", tmp_path))
    certificates.write_private(tmp_path / certificates.MEMBER, made.issue("driver"))
    assert scheduler_address.security(scheduler_address.SchedulerAddress("tls://10.0.0.1:4", tmp_path)).require_encryption is True
    monkeypatch.setenv(scheduler_address.TLS_DIRECTORY, str(tmp_path))
    assert scheduler_address.find("tls://10.0.0.1:4") == scheduler_address.SchedulerAddress("tls://10.0.0.1:4", tmp_path)


@pytest.mark.parametrize("name", ["", "-x", "A", "a b", "a/b", "..", "x" * 32])
def test_names_that_are_none(name):
    with pytest.raises(UsageError):
        scheduler_address.check_name(name)
    assert scheduler_address.check_name("db-lab-2") == "db-lab-2"
