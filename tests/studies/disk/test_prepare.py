"""A disk request completed for this host, with nothing written; what cannot be done is said."""

import os

import pytest

from pgherd.host import block_trace
from pgherd.host.storage import Device
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.studies.disk import prepare as module
from pgherd.studies.disk.options import DiskRequest
from pgherd.studies.disk.prepare import over_hosts, prepare

pytestmark = pytest.mark.usefixtures("own_directories")


class Node(LocalNode):
    """As this one, but with a fio of its own."""

    version, engines = "fio-3.33", "libaio\n\tpsync\n\tio_uring\n"

    def run(self, command, timeout=60.0):
        if command.argv[0] != "fio":
            return super().run(command, timeout)
        return Completed(0, self.version if command.argv[1] == "--version" else self.engines, "")


@pytest.fixture
def place(tmp_path_factory):
    """A directory that every account can enter."""
    found = tmp_path_factory.mktemp("volume")
    for path in (found, *found.parents):
        if str(path).startswith("/tmp/") and path.owner() == "root" and os.geteuid() == 0:
            path.chmod(0o755)
    return found


def prepared(node=None, **asked):
    return prepare(node or Node(), DiskRequest.model_validate(asked), dry=True)


def test_a_plain_request_measures_where_the_servers_data_would_lie(own_directories):
    found = prepared()
    assert found.options.volumes[0].volume.path == str(own_directories / "cache" / "pgherd")
    assert found.installation is None and found.tools == {"fio": "3.33"} and found.tool_versions()["fio"] == "3.33"
    assert not (own_directories / "cache").exists(), "a dry run makes nothing"
    assert any("choose others with --volume" in choice for choice in found.defaults_chosen)
    assert found.confirm == () and found.typed == ()


def test_requests_are_traced_where_that_is_asked_for_and_possible(monkeypatch):
    monkeypatch.setattr(block_trace, "refused", lambda node: "")
    found = prepared(trace_io=True)
    assert found.environment.trace_io and any("perf traces block requests" in choice for choice in found.defaults_chosen)
    assert not prepared().environment.trace_io
    monkeypatch.setattr(block_trace, "refused", lambda node: "perf is not installed")
    with pytest.raises(CapabilityError, match="--trace-io: perf is not installed"):
        prepared(trace_io=True)


def test_of_a_partition_the_whole_device_is_watched(monkeypatch):
    """The sampler leaves partitions out: what their device did is all there is to see."""
    monkeypatch.setattr(module, "require_empty", lambda node, path: 2**30)
    monkeypatch.setattr(module.file_systems, "require_tools", lambda *asked: None)
    monkeypatch.setattr(module.storage, "device_number", lambda node, path: {"/dev/mapper/part": "8:17"}[path])
    monkeypatch.setattr(module, "device_of", lambda node, number: {"8:17": Device("8:16", "sdb")}[number])
    (one,) = prepared(volume=("device:/dev/mapper/part",), allow_format=("/dev/mapper/part",)).options.volumes
    assert one.devices == ("sdb",) and one.filesystem == "ext4"


def test_volumes_are_looked_at_and_left_as_they_are(place):
    found = prepared(volume=(f"a={place}", str(place)), file_size="64MB", rate_iops="70,30", iodepth=4)
    assert [one.name for one in found.options.volumes] == ["a", "disk1"]
    one = found.options.volumes[0]
    assert one.size == 64 * 2**20 and one.filesystem and found.disk == 128 * 2**20
    assert found.options.rate_iops == (70, 30) and "mix" in found.options.tests and found.options.iodepth == 4
    assert list(place.iterdir()) == [] and f"private directory below {place}" in found.host_changes[0]
    if one.devices:
        assert any("are on the same device" in choice for choice in found.defaults_chosen)


def test_a_loop_volume_is_a_change_that_is_asked_about_and_marked(place):
    if os.geteuid() != 0:
        pytest.skip("loop volumes need root")
    found = prepared(volume=(f"loop:128MB@{place}",))
    assert len(found.confirm) == 1 and "loop device" in found.confirm[0]
    assert found.options.volumes[0].loopback and any("is a loop device" in choice for choice in found.defaults_chosen)
    assert found.options.volumes[0].size <= 0.85 * 128 * 2**20


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"rate_iops": "100"}, UsageError, "two whole numbers, reads and writes"),
        ({"rate_iops": "70,0"}, UsageError, "the minimum of each rate is 1 per second"),
        ({"tests": ("mix",)}, UsageError, "needs two rates"),
        ({"volume": ("/tmp",), "buffered": True, "numjobs": 4}, UsageError, "--numjobs 4: each job has one I/O in flight here"),
        ({"tests": ("random-read",), "rate_iops": "70,30"}, UsageError, "--tests does not include it"),
        ({"tests": ("fast",)}, UsageError, "no test 'fast'; use one or more of random-read"),
        ({"volume": ("/nonexistent",)}, UsageError, "--volume /nonexistent does not exist"),
        ({"volume": ("/etc/hostname",)}, UsageError, "--volume /etc/hostname is not a directory"),
        ({"volume": ("device:/dev/pgherd-none",)}, UsageError, "give --allow-format /dev/pgherd-none"),
        ({"volume": ("device:/dev/pgherd-none",), "allow_format": ("/dev/pgherd-none",)}, UsageError, "does not exist|needs root"),
        ({"allow_format": ("/dev/sdz",), "volume": ("/tmp",)}, UsageError, "no --volume names device:/dev/sdz"),
        ({"volume": ("/tmp", "disk0=/var")}, UsageError, "'disk0' is used twice"),
        ({"volume": ("all=/tmp",)}, UsageError, "'all' is the name for all volumes"),
        ({"file_size": "1MB"}, UsageError, "the minimum is 16 MB"),
        ({"file_size": "900TB"}, UsageError, "900 TB"),
        ({"host_cores": 4096}, UsageError, "--host-cores 4096 is more"),
        ({"run_as": "no-such-account"}, UsageError, "no user 'no-such-account'"),
    ],
)
def test_what_cannot_be_done_is_said(asked, error, said):
    with pytest.raises((error, CapabilityError), match=said):
        prepared(**asked)


def test_a_directory_that_cannot_be_written_to_is_refused(place):
    if os.path.exists("/proc/sys"):
        with pytest.raises(CapabilityError, match="/proc/sys cannot be written to|/proc/sys: servers run"):
            prepared(volume=("/proc/sys",))


def test_an_engine_that_this_fio_lacks_is_refused():
    node = Node()
    node.engines = "psync\n"
    assert prepared(node).options.ioengine == "psync"
    with pytest.raises(CapabilityError, match="no engine 'io_uring'; use one of psync"):
        prepared(node, ioengine="io_uring")


def test_several_hosts_have_files_of_one_size_and_each_its_own_place(place):
    one = prepared(volume=(f"data={place}",), file_size="64MB", seed=3).options
    smaller = one.model_copy(update={"volumes": (one.volumes[0].model_copy(update={"size": 32 * 2**20}),), "host_cores": 1, "seed": 4})
    found = over_hosts({"a": one, "b": smaller})
    assert [volume.volume.target for volume in found.volumes] == ["a/data", "b/data"] and found.hosts == ("a", "b")
    assert {volume.size for volume in found.volumes} == {32 * 2**20} and (found.host_cores, found.seed) == (1, 3)
    assert found.fio_version == "3.33"
    with pytest.raises(UsageError, match=r"default fio engine differs \(libaio on a, psync on b\); choose one with --ioengine"):
        over_hosts({"a": one, "b": one.model_copy(update={"ioengine": "psync"})})
