"""The basic paths on every major that can be had: start, template, clones, a measured run, the script that repeats it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host.facts import gather
from pgherd.host.server_user import server_account
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.errors import CapabilityError
from pgherd.model.load import Load, Phase
from pgherd.model.run import RunEnvironment
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.node.process import MARK
from pgherd.postgres import installations, version_differences
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import open_session

_spec = importlib.util.spec_from_file_location("further_postgres", Path(__file__).with_name("further_postgres.py"))
assert _spec and _spec.loader
further = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(further)

NODE = LocalNode()


@pytest.fixture(scope="module")
def reachable() -> Iterator[Path]:
    """A directory into which installations are copied where the servers' account cannot run them."""
    root = Path(tempfile.mkdtemp(prefix="versions-", dir="/tmp"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def of_major(major: int, reachable: Path) -> Installation:
    try:
        if major in further.MAJORS:
            found = installations.choose(NODE, further.bin_of(major))
        else:
            found = next((one for one in installations.find_all(NODE) if one.major == major), None)
        if found is None:
            pytest.skip(f"there is no PostgreSQL {major} here")
        return installations.reachable_copy(NODE, found, server_account(), str(reachable))
    except (further.NotToBeHad, CapabilityError) as error:
        pytest.skip(f"PostgreSQL {major}: {error}")


@pytest.fixture(params=sorted(further.MAJORS))
def installation(request, reachable) -> Installation:
    found = of_major(request.param, reachable)
    assert found.major == request.param
    return found


def test_two_databases_and_their_script(pgherd, installation):
    ended = pgherd.density("--databases", "2", "--time-budget", "1s", "--workload", "tpcb-like", "--pg-bin", installation.bin)
    assert ended.code in (0, 1), ended
    trial = pgherd.trials()[0]
    assert trial["error"] is None
    (phase,) = trial["phases"]
    assert len(phase["targets"]) == 2
    for target in phase["targets"]:
        assert target["throughput"] > 0 and target["failed"] == 0 and target["latency"]["mean"] > 0 and target["latency"]["sampled"] > 0
    servers = [metrics for entity, metrics in phase["metrics"].items() if entity.startswith("server:")]
    assert len(servers) == 2 and all({"db.blks_hit", "checkpoint.timed", "wal.bytes"} <= set(metrics) for metrics in servers)
    record = pgherd.record()
    assert record["postgres"] == {installation.bin: installation.build}
    if installation.major < 18:
        assert any("Data checksums on" in sentence for sentence in record["defaults_chosen"])
    shown = pgherd("show", "last", "1", "--repro-script")
    assert shown.code == 0 and "--data-checksums" in shown.out
    file = pgherd.runs / "repeat.sh"
    file.write_text(shown.out)
    file.chmod(0o644)
    place = pgherd.root / f"repeat-{installation.major}"
    place.mkdir()
    place.chmod(0o1777)
    done = subprocess.run(
        ["sh", file], env={"PATH": os.environ["PATH"], "TMPDIR": str(place), MARK: "1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" tps") == 3 and os.listdir(place) == []


def test_two_versions_within_one_run(own_directories, reachable):
    """One after the other under one name, as they are compared: each from its own template, with the same checksums."""
    found = [of_major(major, reachable) for major in (17, 18)]
    facts = gather(NODE)
    with open_session(
        NODE, "20260101-000000-compare-ab12", RunEnvironment(runtime="process", cores=facts.cores, memory=2**30), RunObserver()
    ) as live:
        deployer = Deployer(live, {one.bin: one for one in found}, RunObserver())
        try:
            for one in (*found, found[0]):
                stage, how = deployer.apply(trial(one))
                assert how == "1 restored"
                (server,) = stage.view().servers
                assert server.major == one.major
                said = NODE.sql(server.conninfo, "SELECT current_setting('server_version'), current_setting('data_checksums')")
                NODE.disconnect(server.conninfo)
                assert said[0][0].split()[0] == one.version and said[0][1] == "on"
        finally:
            deployer.close()


def trial(installation: Installation) -> Trial:
    settings = {"shared_buffers": "32MB", "max_connections": "20"}
    server = Server(bin=installation.bin, version=installation.version, settings=settings, checksums=True, databases=(Database(scale=1),))
    deployment = Deployment(hosts=(Host(containers=(Container(name="arm", servers=(server,)),)),))
    loads = {"local/arm/pg/bench": Load()}
    return Trial(point={"clients": 1}, deployment=deployment, phases=(Phase(warmup=0, seconds=1, loads=loads),))


def test_what_differs_by_itself_is_known(own_directories, reachable):
    """Against what the versions' release notes say."""
    account = server_account()
    found = {}
    for major, checksums in ((16, True), (18, True), (18, False)):
        one = of_major(major, reachable)
        sockets = str(reachable / "s")
        found[major, checksums] = version_differences.read_from_server(
            NODE, one, account=account, directory=str(reachable), socket_dir=sockets, checksums=checksums
        )
    rows = {row.name: row for row in version_differences.differing(found[16, True], found[18, True])}
    assert "data checksums" not in rows and "encoding" not in rows, "they are matched"
    assert (rows["effective_io_concurrency"].one, rows["effective_io_concurrency"].other) == ("1", "16")
    assert (rows["io_method"].one, rows["io_method"].other) == (version_differences.ABSENT, "worker")
    assert (rows["vacuum_buffer_usage_limit"].one, rows["vacuum_buffer_usage_limit"].other) == ("256 kB", "2 MB")
    assert rows["locale"].one == "C (libc)" and rows["locale"].other == "C.UTF-8 (builtin)"
    (row,) = version_differences.differing(found[18, True], found[18, False])
    assert (row.name, row.one, row.other) == ("data checksums", "on", "off") and row.meaning
