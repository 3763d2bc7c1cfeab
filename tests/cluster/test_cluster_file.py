"""What is written down of clusters."""

from __future__ import annotations

import stat

import pytest

from pgherd.cluster import cluster_file
from pgherd.cluster.cluster_file import AgentRecord, ClusterRecord
from pgherd.model.errors import UsageError

KNOWN = ClusterRecord(
    name="default",
    id="0a",
    address="tls://10.0.0.1:4",
    pid=10,
    start=20,
    hosts=(AgentRecord(name="a", pid=1, start=2, directory="/x", python="python3"),),
    ssh_config="/some/config",
)


def test_written_read_and_dropped(own_directories):
    assert cluster_file.names() == [] and cluster_file.load("default") is None
    path = cluster_file.make_directory("default")
    cluster_file.save(KNOWN)
    assert cluster_file.load("default") == KNOWN and cluster_file.names() == ["default"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o700 and not list(path.glob("*.tmp"))
    cluster_file.drop("default")
    assert cluster_file.names() == [] and not path.exists()


def test_a_torn_record_is_one_message(own_directories):
    path = cluster_file.make_directory("default")
    (path / "cluster.json").write_text('{"name": "default"')
    with pytest.raises(UsageError, match=r"cluster.json cannot be read"):
        cluster_file.load("default")


@pytest.mark.parametrize("name", ["../default", "a/b", ""])
def test_no_name_leads_out_of_the_directory(own_directories, name):
    assert cluster_file.load(name) is None
