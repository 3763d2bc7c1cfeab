"""What a comparison can vary beside settings: the runtime, and where the WAL lies. Servers are started for real."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.host.server_user import server_account
from pgherd.model.deployment import Container, Database, Deployment, Host, Server, Volume
from pgherd.model.errors import CapabilityError
from pgherd.model.load import Load, Phase
from pgherd.model.run import RunEnvironment
from pgherd.model.trial import State, Trial
from pgherd.node.local import LocalNode
from pgherd.node.process import MARK
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.execute import phases
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import open_session
from pgherd.runtimes.runtime_selection import choose

NODE = LocalNode()
RUN = "20260101-000000-compare-ab12"


@pytest.fixture
def usable(own_directories: Path) -> Installation:
    try:
        found = installations.choose(NODE)
        return installations.reachable_copy(NODE, found, server_account(), str(own_directories / "cache/pgherd"))
    except CapabilityError as error:
        pytest.skip(str(error))


@pytest.fixture
def wal_disk() -> Iterator[Path]:
    """Somebody's directory with something in it, on another file system where there is one, that any account can enter."""
    other = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="wal disk-", dir=other if os.access(other, os.W_OK) else "/tmp"))
    place.chmod(0o755)
    (place / "precious").write_text("do not touch")
    yield place
    left = os.listdir(place)
    shutil.rmtree(place)
    assert left == ["precious"]


@contextlib.contextmanager
def opened(usable: Installation) -> Iterator[Deployer]:
    facts = gather(NODE)
    with open_session(NODE, RUN, RunEnvironment(runtime="process", cores=facts.cores, memory=2**30), RunObserver()) as live:
        deployer = Deployer(live, {usable.bin: usable}, RunObserver())
        try:
            yield deployer
        finally:
            deployer.close()


def trial(usable: Installation, *, state: State = "warm", wal: Path | None = None, **of_container: object) -> Trial:
    server = Server(
        bin=usable.bin,
        version=usable.version,
        settings={"shared_buffers": "32MB", "max_connections": "20"},
        volumes={} if wal is None else {"wal": "wal"},
        databases=(Database(scale=1),),
    )
    container = Container.model_validate({"name": "arm", "servers": (server,), **of_container})
    volumes = () if wal is None else (Volume(name="wal", path=str(wal)),)
    loads = {"local/arm/pg/bench": Load(clients=1)}
    return Trial(
        point={"clients": 1},
        deployment=Deployment(hosts=(Host(containers=(container,)),), volumes=volumes),
        state=state,
        phases=(Phase(warmup=0, seconds=1, loads=loads),),
    )


def test_two_runtimes_within_one_run(usable, tmp_path):
    """The same container as a process and as a control group, in turns: what is compared with `compare`."""
    journal = Journal.open(NODE, tmp_path / "state", "look")
    try:
        choose(NODE, journal, gather(NODE), "cgroup", "look")
    except CapabilityError as error:
        pytest.skip(str(error))
    finally:
        journal.close()
    with opened(usable) as deployer:
        for number, runtime in enumerate(("process", "cgroup", "process")):
            stage, how = deployer.apply(trial(usable, runtime=runtime, memory=2**28 if runtime == "cgroup" else None))
            assert how == ("1 restarted" if number else "1 restored")
            groups = stage.view().containers[0].groups
            assert bool(groups) == (runtime == "cgroup")
            (directory := tmp_path / str(number)).mkdir()
            (played,), _ = phases.run(NODE, trial(usable), stage, directory, deployer.scratch / str(number), RunObserver())
            used = played.metrics["container:arm"]["cpu.usage"]
            assert played.throughput > 0 and used > 0, "each accounts for its container in its own way"
            for group in groups.values():
                assert str(stage.view().servers[0].pid) in Path(group, "cgroup.procs").read_text().split()


def test_the_wal_of_a_server_lies_where_it_is_told_to(usable, wal_disk):
    def places(deployer: Deployer) -> tuple[Path, int]:
        server = deployer.view().servers[0]
        data = Path(str(NODE.sql(server.conninfo, "SHOW data_directory")[0][0]))
        files = int(NODE.sql(server.conninfo, "SELECT count(*) FROM pg_ls_waldir()")[0][0])
        NODE.disconnect(server.conninfo)
        return data / "pg_wal", files

    with opened(usable) as deployer:
        deployer.apply(trial(usable, wal=wal_disk))
        link, files = places(deployer)
        there = link.readlink()
        assert there.is_relative_to(wal_disk) and files >= 1
        assert sum(file.is_file() for file in there.iterdir()) >= files
        assert there.owner() == (server_account() or Path("/proc/self").owner())
        assert deployer.apply(trial(usable, wal=wal_disk, state="restarted"))[1] == "1 restarted"
        assert places(deployer)[0].readlink() == there
        assert deployer.apply(trial(usable, wal=wal_disk, state="fresh"))[1] == "1 restored"
        assert places(deployer)[0].readlink() != there and not there.exists(), "that of the server before is gone"
        assert deployer.apply(trial(usable))[1] == "1 restored"
        link, files = places(deployer)
        assert not link.is_symlink() and files >= 1
        (root,) = set(wal_disk.iterdir()) - {wal_disk / "precious"}
        assert os.listdir(root) == [".pgherd"], "nothing of a server that is not there any more"


def test_a_whole_run_with_the_wal_elsewhere_and_its_script(pgherd, wal_disk):
    ended = pgherd.density(
        *("--databases", "1", "--workload", "tpcb-like", "--wal-volume", str(wal_disk)),
        *("--runtime", "process", "--client-placement", "outside"),
    )
    assert ended.code in (0, 1), ended
    assert os.listdir(wal_disk) == ["precious"]
    shown = pgherd("show", "last", "1", "--repro-script")
    assert f"DIR_on_wal='{wal_disk}'" in shown.out and '.pg "$DIR_on_wal"' in shown.out, shown
    file = pgherd.runs / "repeat.sh"
    file.write_text(shown.out)
    file.chmod(0o644)
    place = pgherd.root / "repeat here"
    place.mkdir()
    place.chmod(0o1777)
    wal_disk.chmod(0o1777)
    done = subprocess.run(
        ["sh", file], env={"PATH": os.environ["PATH"], "TMPDIR": str(place), MARK: "1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "sum: " in done.stdout, done.stderr
    assert os.listdir(place) == [] and os.listdir(wal_disk) == ["precious"]


def test_a_killed_run_leaves_nothing_on_the_wal_disk_after_clean(pgherd, wal_disk):
    process = pgherd.start_density("--databases", "1", "--duration", "30s", "--wal-volume", str(wal_disk), "--runtime", "process")
    pgherd.wait_until(lambda: pgherd.in_trial(1))
    assert len(os.listdir(wal_disk)) == 2
    process.send_signal(signal.SIGKILL)
    pgherd.end(process)
    assert pgherd("clean").code == 0
    assert os.listdir(wal_disk) == ["precious"]
    for partial in pgherd.runs.glob("*/trials/*.partial"):
        shutil.rmtree(partial)


def test_a_wal_directory_that_is_none(pgherd, wal_disk):
    for words, code, message in (
        (str(wal_disk / "nowhere"), 2, "does not exist"),
        (str(wal_disk / "precious"), 2, "is not a directory"),
    ):
        ended = pgherd.density("--databases", "1", "--wal-volume", words)
        assert ended.code == code and message in ended.message, ended
    assert not pgherd.runs.exists() or not os.listdir(pgherd.runs)
