"""What travels between hosts."""

from __future__ import annotations

import pickle

import pytest

from pgherd.cluster.remote import HostLost, named, on_host, this_host


def test_a_lost_host_is_told_and_survives_the_way():
    error = pickle.loads(pickle.dumps(HostLost("db3", "its agent has ended")))
    assert (error.host, error.why, str(error)) == ("db3", "its agent has ended", "host db3 is lost: its agent has ended")
    assert error.exit_code == 1


def test_a_file_is_named_with_its_host():
    """What is told of a full disk names the file alone."""
    for path, said in (("/x", "/x on host a"), (None, "a file on host a")):
        error = named(OSError(28, "No space left on device", path), "a")
        assert isinstance(error, OSError) and (error.errno, error.filename) == (28, said)


def test_code_knows_the_host_that_it_runs_on():
    with pytest.raises(LookupError):
        this_host()
    with on_host("db1"):
        assert this_host() == "db1"
        with on_host("db2"):
            assert this_host() == "db2"
        assert this_host() == "db1"
