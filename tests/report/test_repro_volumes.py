"""Directories of volumes in a script. Steps of a whole script: test_commands.py; that they work: tests/it."""

from __future__ import annotations

import subprocess

from pgherd.model.deployment import Container, Deployment, Host, Server, Volume
from pgherd.report import repro_volumes


def deployment(*servers: Server, volumes: tuple[Volume, ...]) -> Deployment:
    return Deployment(hosts=(Host(containers=(Container(name="db01", servers=servers),)),), volumes=volumes)


VOLUMES = (Volume(name="on-data", path="/it's here"), Volume(name="spare", path="/spare"), Volume(name="lo", kind="loop", size=2**30))
SERVER = Server(bin="/pg", version="18.6", volumes={"data": "on-data", "wal": "lo"}, tablespaces=("on-data", "lo"))


def test_only_volumes_that_servers_use_are_asked_for() -> None:
    given = deployment(SERVER, SERVER.model_copy(update={"name": "second"}), volumes=VOLUMES)
    assert {name: parts for name, (_, parts) in repro_volumes.used_volumes(given).items()} == {
        "on-data": ["data", "tables and indexes"],
        "lo": ["WAL", "tables and indexes"],
    }
    assert list(repro_volumes.environment_comments(given)) == [
        "# DIR_on_data, directory for the servers' data and tables and indexes (in the run: /it's here).",
        "# DIR_lo, directory for the servers' WAL and tables and indexes (in the run: a loop volume made by pgherd).",
    ]
    assert list(repro_volumes.default_lines(deployment(volumes=VOLUMES))) == []


def test_a_directory_is_where_it_was_unless_another_is_named() -> None:
    line = repro_volumes.default_line(VOLUMES[0])
    for environment, wanted in (({}, "/it's here"), ({"DIR_on_data": "/else"}, "/else")):
        done = subprocess.run(["sh", "-euc", f'{line}\nprintf %s "$DIR_on_data"'], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, wanted)


def test_without_tablespaces_nothing_is_asked_of_a_running_server() -> None:
    plain = Server(bin="/pg", version="18.6")
    assert list(repro_volumes.tablespace_lines("db01.pg", plain)) == [] and list(repro_volumes.relations_lines([plain])) == []
    assert list(repro_volumes.copy_lines("loaded1", "db01.pg", plain)) == ["copy loaded1 db01.pg"]
    assert "pg_relation_size" in "\n".join(repro_volumes.relations_lines([plain, SERVER]))
