import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from pgherd.host import paths
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.runner.preparation import preparation
from pgherd.studies.databases import DatabaseOptions, DatabaseRequest

pytestmark = pytest.mark.usefixtures("own_directories")


def _ground(**asked):
    return preparation(LocalNode(), DatabaseRequest(**asked), dry=True)


def test_what_is_made_to_look_goes_again():
    with _ground() as ground:
        assert ground.work.is_dir()
        work = ground.work
    assert not work.exists()
    assert not list((Path(paths.state_dir()) / "journal").glob("[a-z]*"))


def test_options_of_the_databases_are_complete():
    with _ground(runtime="process", vcpus=1, set=("work_mem=3MB",), seed=4, scale=2) as ground:
        limits = ground.limits(8.0)
        size = ground.database_bytes()
        selected = ground.settings(size, 2, None)
        options = DatabaseOptions(**ground.options(limits, selected, None))
    assert (options.vcpus, options.cpu_mode, options.runtime, options.seed, options.scale) == (1, "cpuset", "process", 4, 2)
    assert options.settings["work_mem"] == "3MB" and options.read_only
    assert 2 * 10e6 < size < 2 * 30e6


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"cores": 4096}, UsageError, "--cores 4096 is more than this host has"),
        ({"host_memory": "900TB"}, UsageError, "--host-memory 900"),
        ({"vcpus": 1.5, "cpu_mode": "cpuset", "runtime": "process"}, UsageError, "whole CPUs"),
        ({"cpu_mode": "quota", "runtime": "process"}, CapabilityError, "needs the cgroup runtime"),
        ({"vcpus": 4096.0, "runtime": "process"}, UsageError, "more than the"),
        ({"memory": "1GB", "runtime": "process"}, CapabilityError, "--memory needs the cgroup runtime"),
        ({"init": "x.sql"}, UsageError, "--init fills a database"),
        ({"set": ("shared_bufers=1GB",)}, UsageError, "shared_bufers"),
    ],
)
def test_what_cannot_be_is_refused(asked, error, message):
    with pytest.raises(error, match=message), _ground(**asked) as ground:
        ground.container_memory()
        ground.limits(1.0)
        ground.settings(ground.database_bytes(), 2, None)


def test_a_disk_too_small_is_refused(monkeypatch):
    usage = namedtuple("usage", "total used free")
    with _ground() as ground:
        assert ground.disk(3, 10**8) >= 4 * 10**8
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 9 * 10**8, 10**8))
        with pytest.raises(UsageError, match=r"3 databases of about .* MB free; lower --scale"):
            ground.disk(3, 10**8)


def test_a_users_own_size_is_assumed_until_it_is_loaded(tmp_path):
    script, init = tmp_path / "x.sql", tmp_path / "init.sql"
    script.write_text("select 1;")
    init.write_text("create table t (i int);")
    os.chmod(tmp_path, 0o755)
    with _ground(script=(str(script),), init=str(init)) as ground:
        assert ground.database_bytes() > 10**8
        assert any("known only once it is loaded" in choice for choice in ground.choices)
        assert not ground.read_only
