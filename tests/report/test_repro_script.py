from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from pgherd.drivers.driver import Endpoint
from pgherd.drivers.pgbench import DRIVER
from pgherd.model.deployment import Container, Database, Deployment, Host, InitData, Server, Volume
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import TrialResult
from pgherd.model.run import RunEnvironment, RunRecord, Swap
from pgherd.model.trial import Trial
from pgherd.postgres import configuration, instance
from pgherd.postgres.templates import LOADING
from pgherd.report import repro_script
from pgherd.report.repro_script import of_one_host, script

HOSTILE = '/o p\'t/"$(touch pwned)"`touch pwned`;&\\\n*'
STEPS = ("create", "settings", "start", "ready", "client", "quietly", "settle", "loaded", "copy", "warm", "run", "report", "take", "size")
STEPS += ("on_disk", "find_groups", "told", "group", "data", "wal", "space", "temporary", "spread", "reserve", "transparent")

# Each step only records its arguments and standard input.
# One write each: steps that run at the same time write whole records.
STUBS = "\n".join(f'{name}() {{ printf "%s\\0" {name} "$@" "$(cat)" "$END" >>calls; }}' for name in STEPS)


def record(run="20260101-000000-density-ab12", logical_cpus=8, cores=None, run_as="pgherd"):
    facts = HostFacts(hostname="h", kernel="k", cores=cores or logical_cpus, logical_cpus=logical_cpus, memory=2**34)
    around = RunEnvironment(runtime="cgroup", run_as=run_as, cores=cores or logical_cpus, memory=2**33)
    return RunRecord(run=run, study="density", options={}, environment=around, started=0, pgherd="1", hosts={"local": facts})


def server(**changes):
    return Server(**{"bin": "/pg/bin", "version": "18.6", "settings": {"shared_buffers": "40MB"}} | changes)


def container(name="db01", **changes):
    chosen = {"runtime": "cgroup", "vcpus": 0.25, "cpu_mode": "quota", "memory": 2**30, "servers": (server(),)} | changes
    return Container(name=name, **chosen)


def result(*containers, phases=None, host=None, volumes=(), **changes):
    deployment = Deployment(
        hosts=(Host(**{"cores": 4.0, "memory": 2**33} | (host or {}), containers=containers or (container(),)),), volumes=volumes
    )
    if phases is None:
        phases = (Phase(warmup=1, seconds=2.5, loads={"local/db01/pg/bench": Load(clients=2)}),)
    trial = Trial(point={"databases": 1}, deployment=deployment, phases=phases, **changes)
    return TrialResult(id="0007", trial=trial, started=0, ended=1)


def steps(text, tmp_path, bin_=None) -> list[list[str]]:
    """Run the trial's part of the script with steps that only note how they were called."""
    trial = text.partition("# ==== The trial\n")[2]
    assert trial
    head = f"set -eu\nEND=\036\nVERSION=\nwork=/w\nBIN={shlex.quote(bin_ or '/pg/bin')}\n"
    # Not by standard input, of which the steps would take what sh has not read yet.
    (tmp_path / "trial.sh").write_text(f"{head}{STUBS}\n{trial}")
    done = subprocess.run(["sh", "trial.sh"], stdin=subprocess.DEVNULL, cwd=tmp_path, text=True, capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "pwned").exists()
    calls = (tmp_path / "calls").read_text().split("\036\0")
    return [call.split("\0")[:-1] for call in calls if call]


def named(calls, *name):
    """The words after the name, of the steps that begin with it; the last argument is the standard input."""
    return [call[len(name) :] for call in calls if call[: len(name)] == list(name)]


def test_pgbench_is_told_what_the_driver_told_it(tmp_path):
    file = tmp_path / "it's $HOME @2.sql"
    file.write_text("SELECT 1;\n")
    loads = {
        "local/db01/pg/bench": Load(
            clients=4, threads=2, rate=10, scripts=(Script(source=str(file), weight=3), Script(source="builtin:tpcb-like"))
        ),
        "local/db02/pg/bench": Load(protocol="simple", options={"define:a": HOSTILE.replace("\n", " ")}, client_placement="outside"),
    }
    found = steps(
        script(result(container(), container("db02"), phases=(Phase(warmup=1, seconds=2.5, loads=loads),)), record()), tmp_path, HOSTILE
    )
    runs = named(found, "run")
    assert [one[:4] for one in runs] == [["001", "local/db01/pg/bench", "db01", "all"], ["002", "local/db02/pg/bench", "-", "all"]]
    staged = loads["local/db01/pg/bench"].model_copy(
        update={"scripts": (Script(source="/w/script-1.sql", weight=3), Script(source="builtin:tpcb-like"))}
    )
    for words, load, name in zip(runs, (staged, loads["local/db02/pg/bench"]), ("db01", "db02"), strict=True):
        number = words[0]
        endpoint = Endpoint("", HOSTILE, f"/w/{name}.pg", 5432, "bench", "postgres", f"/w/clients/{number}", scale=10)
        assert words[4:-1] == DRIVER.argv(load, endpoint, 4)
    assert named(found, "take") == [[str(file), "script-1.sql", ""]]
    assert named(found, "quietly", "client", "db01.pg") == [["psql", "-qX", "-d", "postgres", "-c", "CHECKPOINT", ""]], (
        "only this one writes"
    )


def test_servers_and_clients_under_sched_batch_are_started_by_chrt(tmp_path):
    loads = {"local/db01/pg/bench": Load(sched_batch=True), "local/db02/pg/bench": Load()}
    containers = container(), container("db02", servers=(server(sched_batch=True),))
    found = steps(script(result(*containers, phases=(Phase(loads=loads),)), record()), tmp_path)
    started = [call[:-1] for call in named(found, "start")]
    assert started[-2:] == [["db01.pg", "db01", "all"], ["db02.pg", "db02", "all", "chrt", "--batch", "0"]]
    assert named(found, "run")[0][4:8] == ["chrt", "--batch", "0", "/pg/bin/pgbench"]
    assert named(found, "run")[1][4] == "/pg/bin/pgbench"


def test_servers_get_the_same_settings_and_initdb_the_same_arguments(tmp_path):
    settings = {"search_path": "it's \\ $HOME `id`\nEND\n'", "work_mem": "4MB"}
    servers = (server(settings=settings, version="15.18 (Debian 15.18-0+deb12u1)"),)
    found = steps(script(result(container(servers=servers)), record()), tmp_path)
    assert named(found, "create") == [["loaded1", *instance.initdb_arguments(15), ""]]
    private = {"listen_addresses": "", "port": "5432"}
    (loading, _), (measured, text) = (call for call in ((c[0], c[1]) for c in named(found, "settings")))
    assert (loading, measured) == ("loaded1", "db01.pg")
    assert configuration.read(text).settings == settings | private | {"cluster_name": "db01/pg"}
    loaded = configuration.read(named(found, "settings", "loaded1")[0][0]).settings
    assert loaded == dict(LOADING) | private | {"cluster_name": "loaded1"}


def test_the_log_goes_where_it_was(tmp_path):
    place = HOSTILE.replace("\n", " ")
    apart = container(servers=(server(volumes={"wal": "fast"}), server(name="beside")))
    text = script(result(apart, volumes=(Volume(name="fast", path=place),)), record())
    found = steps(text, tmp_path)
    assert named(found, "wal") == [["db01.pg", place, ""]]
    names = [call[0] for call in found]
    assert names.index("copy") < names.index("wal") < names.index("on_disk"), "it is moved while the server is down"
    assert "# DIR_fast, directory for the servers' WAL (in the run: " in text and "each_elsewhere()" in text
    assert "each_elsewhere()" not in script(result(), record())


def test_every_part_goes_where_it_was(tmp_path):
    places = {name: f"/srv/{name}" for name in ("big", "fast", "scratch", "one", "two")}
    databases = (Database(name="a"), Database(name="b-2"))
    parts = {"data": "big", "wal": "fast", "temp": "scratch"}
    apart = container(servers=(server(volumes=parts, tablespaces=("one", "two"), databases=databases),))
    volumes = tuple(Volume(name=name, path=path) for name, path in places.items())
    loads = {"local/db01/pg/a": Load()}
    found = steps(script(result(apart, volumes=volumes, phases=(Phase(loads=loads),)), record()), tmp_path)
    assert named(found, "data") == [["db01.pg", "/srv/big", ""]] and named(found, "copy") == [["loaded1", "db01.pg", ""]]
    assert named(found, "wal") == [["db01.pg", "/srv/fast", ""]]
    assert [call[:-1] for call in named(found, "space")] == [
        ["db01.pg", "pgherd_temp", "/srv/scratch"],
        ["db01.pg", "pgherd_space_0", "/srv/one"],
        ["db01.pg", "pgherd_space_1", "/srv/two"],
    ]
    assert [call[:-1] for call in named(found, "temporary")] == [["db01.pg", "pgherd_temp"]]
    spaces = ["pgherd_space_0", "pgherd_space_1"]
    assert [call[:-1] for call in named(found, "spread")] == [["db01.pg", name, *spaces] for name in ("a", "b-2")]
    names = [call[0] for call in found if call[:2] != ["ready", "loaded1"]]
    assert names.index("ready") < names.index("space") and len(names) - names[::-1].index("spread") <= names.index("warm")


def test_a_volume_that_was_made_for_the_run_must_be_named(tmp_path):
    apart = container(servers=(server(volumes={"data": "on-data"}),))
    text = script(result(apart, volumes=(Volume(name="on-data", kind="loop", size=2**30),)), record())
    assert "# DIR_on_data, directory for the servers' data (in the run: a loop volume made by pgherd)." in text
    lines = [line for line in text.splitlines() if "DIR_on_data:?" in line]
    for there in ("", "/somewhere"):
        done = subprocess.run(["sh", "-c", f"set -eu\n{lines[0]}"], env={"DIR_on_data": there}, capture_output=True, text=True)
        assert (done.returncode == 0) == bool(there)
        assert there or "pgherd removed its loop volume: set DIR_on_data to a mounted directory" in done.stderr


def test_what_is_loaded_and_in_which_order(tmp_path):
    init = tmp_path / "fill 'it'.sql"
    init.write_text("CREATE TABLE t ();\n")
    filled = Database(name="own", workload="script", init=str(init), scale=3)
    databases = (Database(name="a", scale=2), Database(name="b-2", scale=2), filled)
    servers = (server(databases=databases), server(name="other"))
    found = steps(script(result(container(servers=servers), phases=()), record()), tmp_path)
    assert named(found, "quietly", "client", "loaded1") == [
        ["createdb", "a", ""],
        ["pgbench", "-i", "-I", "dtgp", "-q", "-s", "2", "a", ""],
        ["createdb", "--template=a", "--strategy=file_copy", "b-2", ""],
        ["createdb", "own", ""],
        [
            "psql",
            "--no-psqlrc",
            "--quiet",
            "--output=/dev/null",
            "--set=scale=3",
            "--set=ON_ERROR_STOP=1",
            "--file=-",
            "own",
            "CREATE TABLE t ();",
        ],
    ]
    assert [call[:2] for call in named(found, "settle")] == [["loaded1", "a"], ["loaded1", "own"], ["loaded2", "bench"]]
    assert not named(found, "copy"), "without phases there is no load"


def test_schemas_are_loaded_and_reached_by_their_search_path(tmp_path):
    schemas = tuple(Database(name=name, schema_of="bench", scale=2) for name in ("db1", "db2"))
    phases = (Phase(loads={f"local/db01/pg/{name}": Load() for name in ("db1", "db2")}),)
    found = steps(script(result(container(servers=(server(databases=schemas),)), phases=phases), record()), tmp_path)
    connections = [f"dbname=bench options='-csearch_path=\"{name}\"'" for name in ("db1", "db2")]
    assert named(found, "quietly", "client", "loaded1") == [
        ["createdb", "bench", ""],
        ["psql", "-qX", "-d", "bench", "-c", 'CREATE SCHEMA "db1"', ""],
        ["pgbench", "-i", "-I", "dtgp", "-q", "-s", "2", connections[0], ""],
        ["psql", "-qX", "-d", "bench", "-c", 'CREATE SCHEMA "db2"', ""],
        ["pgbench", "-i", "-I", "dtgp", "-q", "-s", "2", connections[1], ""],
    ]
    assert named(found, "warm") == [["db01.pg", "bench", ""]], "a database once"
    assert sorted(call[-2] for call in named(found, "run")) == connections


def test_data_of_an_init_file_are_found_where_they_were(tmp_path):
    (tmp_path / "fill.sql").touch()
    (there := tmp_path / "it's there").mkdir()
    data = InitData(directory=str(there), files=("a.csv",), digest="x")
    database = Database(name="own", workload="script", init=str(tmp_path / "fill.sql"), init_data=data)
    lines = script(result(container(servers=(server(databases=(database,)),)), phases=()), record()).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("quietly client loaded1 psql"))
    assert lines[at - 1] == f"cd -- {shlex.quote(str(there))}" and lines[at + 1] == 'cd -- "$work"'


def test_idle_servers_are_up_too_and_all_are_warmed(tmp_path):
    found = steps(script(result(container(), container("db02"), container("db03")), record()), tmp_path)
    assert [call[:2] for call in named(found, "copy")] == [["loaded1", f"db0{n}.pg"] for n in (1, 2, 3)]
    assert [call[:3] for call in named(found, "start")] == [["loaded1", "-", "all"], *([f"db0{n}.pg", f"db0{n}", "all"] for n in (1, 2, 3))]
    assert [call[:2] for call in named(found, "warm")] == [[f"db0{n}.pg", "bench"] for n in (1, 2, 3)]
    assert len(named(found, "run")) == 1


@pytest.mark.parametrize(
    ("host", "cores", "changes", "groups", "room"),
    [
        ({}, 4, {}, [["", "", "8589934592", ""], ["db01", "25000", "1073741824", ""]], ["db01", "all"]),
        ({"cores": 2.0}, 8, {}, [["", "200000", "8589934592", ""], ["db01", "25000", "1073741824", ""]], ["db01", "all"]),
        (
            {"cores": 2.0},
            8,
            {"vcpus": 3.0, "weight": 50},
            [["", "200000", "8589934592", ""], ["db01", "200000", "1073741824", "50"]],
            ["db01", "all"],
        ),
        ({}, 4, {"cpu_mode": "none", "memory": None}, [["", "", "8589934592", ""], ["db01", "", "", ""]], ["db01", "all"]),
        ({}, 4, {"cpu_mode": "cpuset", "vcpus": 2}, [["", "", "8589934592", ""], ["db01", "", "1073741824", ""]], ["db01", "0,1"]),
        ({"memory": None}, 4, {"cpu_mode": "cpuset", "cpus": (2, 3)}, [["", "", "", ""], ["db01", "", "1073741824", ""]], ["db01", "2,3"]),
        ({}, 8, {"runtime": "process", "cpu_mode": "none", "memory": None}, None, ["-", "0,1,2,3"]),
        ({"cores": 8.0}, 8, {"runtime": "process", "cpu_mode": "none", "memory": None}, None, ["-", "all"]),
        ({}, 8, {"runtime": "process", "cpu_mode": "cpuset", "vcpus": 1, "memory": None}, None, ["-", "0"]),
    ],
)
def test_containers_are_given_what_they_had(tmp_path, host, cores, changes, groups, room):
    text = script(result(container(**changes), host=host), record(logical_cpus=cores))
    found = steps(text, tmp_path)
    assert [call[:-1] for call in named(found, "group")] == (groups or [])
    assert named(found, "run")[0][2:4] == room
    assert named(found, "start", "db01.pg")[0][:2] == room
    assert ("remove_groups()" in text) == (groups is not None), "without groups the script has no word of them"


def test_containers_with_whole_cpus_are_spread(tmp_path):
    process = {"runtime": "process", "cpu_mode": "cpuset", "vcpus": 1, "memory": None}
    found = steps(script(result(*(container(f"db0{n}", **process) for n in (1, 2, 3)), host={"cores": 2.0}), record()), tmp_path)
    assert [call[2] for call in named(found, "start")] == ["all", "0", "1", "0"]


def test_phases_follow_each_other(tmp_path):
    first = Phase(name="high", warmup=0, seconds=1, loads={"local/db01/pg/bench": Load(clients=3)}).model_copy(
        update={"name": "high\n' low"}
    )
    second = Phase(name="low", warmup=0, seconds=2, loads={"local/db02/pg/bench": Load(clients=1)})
    found = steps(script(result(container(), container("db02"), phases=(first, second)), record()), tmp_path)
    tail = [call[:3] for call in found if call[0] in ("run", "report")]
    assert tail == [["run", "001", "local/db01/pg/bench"], ["report", ""], ["run", "001", "local/db02/pg/bench"], ["report", ""]]


def test_a_phase_without_load_is_a_pause(tmp_path):
    idle, loaded = Phase(name="idle", warmup=0.1, seconds=0.2), Phase(name="p", loads={"local/db01/pg/bench": Load(clients=3)})
    text = script(result(container(), phases=(idle, loaded)), record())
    assert "\nsleep 0.3\n" in text
    assert [call[0] for call in steps(text, tmp_path) if call[0] in ("run", "report")] == ["run", "report"]


def test_a_probe_of_sizes_is_repeated_without_servers_under_load(tmp_path):
    found = steps(script(result(container(runtime="process", memory=None), phases=(), probe="database-size"), record()), tmp_path)
    assert named(found, "size") == [["loaded1", "bench", ""]]
    assert not named(found, "start", "db01.pg")


def test_names_cannot_break_out_of_comments(tmp_path):
    phase = Phase(seconds=1, loads={"local/db01/pg/bench": Load()}).model_copy(update={"name": "steady\ntouch pwned"})
    found = result(container(servers=(server(bin=HOSTILE, version="18.6\ntouch pwned"),)), phases=(phase,))
    trial = found.trial.model_copy(update={"point": {"databases\ntouch pwned": "\r\ntouch pwned"}})
    text = script(found.model_copy(update={"trial": trial}), record(run="x\ntouch pwned", run_as="a\ntouch pwned"))
    quoted = shlex.split(text.partition("\n\n")[0], comments=True)
    assert [word for word in quoted if "touch pwned" in word] == ["VERSION=18.6\ntouch pwned", f"BIN={HOSTILE}", "ACCOUNT=a\ntouch pwned"]
    steps(text, tmp_path)


PAGES = (
    container(servers=(server(settings={"huge_pages": "on", "huge_page_size": "1GB"}),)),
    container("db02", servers=(server(settings={"huge_pages": "on"}),)),
    container("db03", servers=(server(settings={"huge_pages": "off"}, transparent_huge_pages=True),)),
)


def test_huge_pages_are_reserved_before_their_servers_start_and_given_back(tmp_path):
    text = script(result(*PAGES), record())
    found = steps(text, tmp_path)
    assert [call[:-1] for call in named(found, "reserve")] == [["db01.pg", "1048576"], ["db02.pg", "default"]]
    assert [call[:-1] for call in named(found, "transparent")] == [["always"]]
    names = [call[0] for call in found]
    assert max(names.index("reserve"), names.index("transparent")) < len(names) - names[::-1].index("start") - 1
    assert "give_back()" in text and "give_back()" not in script(result(), record())


def variants():
    process = container(runtime="process", cpu_mode="none", memory=None)
    yield "cgroup", result()
    yield "process", result(process)
    yield "sizes", result(process, phases=(), probe="database-size")
    yield "pages", result(*PAGES)
    apart = server(volumes={"data": "d", "wal": "w", "temp": "d"}, tablespaces=("w", "d"))
    yield "volumes", result(container(servers=(apart,)), volumes=(Volume(name="d", path="/d d"), Volume(name="w", kind="loop", size=2**30)))
    yield (
        "batch",
        result(container(servers=(server(sched_batch=True),)), phases=(Phase(loads={"local/db01/pg/bench": Load(sched_batch=True)}),)),
    )
    yield "hostile", result(container(servers=(server(bin=HOSTILE, settings={"search_path": HOSTILE}),)))


@pytest.mark.parametrize(("name", "found"), list(variants()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_shell_and_shellcheck_have_nothing_to_object(tmp_path, name, found):
    file = tmp_path / "repeat.sh"
    file.write_text(script(found, record()))
    subprocess.run(["sh", "-n", file], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is missing; 'sh -n' passed")
    # SC2016 wonders whether $(…) in single quotes is meant to be words: it is.
    done = subprocess.run(["shellcheck", "--exclude=SC2016", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda: result(container(runtime="vm")), "it needs the runtime vm"),
        (lambda: result(container(servers=()), phases=()), "it has no server"),
        (
            lambda: result(
                Container(name="db01", runtime="external", servers=(server(dsn="host=theirs"),)),
                container("db02"),
            ),
            r"its server \(host=theirs\) is external",
        ),
        (
            lambda: result(container(), container("db02", servers=(server(bin="/other"),))),
            "its servers use different PostgreSQL installations",
        ),
        (lambda: result(phases=(Phase(loads={"local": Load(driver="fio")}),)), "it needs the driver fio"),
        (lambda: result(phases=(), probe="compression"), "it is the probe 'compression'"),
        (lambda: result(container(servers=(server(settings={"a.b": "x\0"}),))), "NUL"),
    ],
)
def test_what_needs_more_than_postgresql_is_refused(changed, message):
    with pytest.raises(UsageError, match=message):
        script(changed(), record())


def test_the_users_files_are_found_where_the_run_lies_now(tmp_path):
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs/0-x.sql").touch()
    loads = {"local/db01/pg/bench": Load(scripts=(Script(source="/gone/run/inputs/0-x.sql"), Script(source="/gone/run/inputs/1-y.sql")))}
    found = steps(script(result(phases=(Phase(loads=loads),)), record(), tmp_path / "inputs"), tmp_path)
    assert [call[0] for call in named(found, "take")] == [str(tmp_path / "inputs/0-x.sql"), "/gone/run/inputs/1-y.sql"]


def test_the_files_of_a_comparisons_arms_lie_in_directories_of_their_own(tmp_path):
    for arm in ("a", "b"):
        (tmp_path / "inputs" / arm).mkdir(parents=True)
        (tmp_path / "inputs" / arm / "0-x.sql").touch()
    loads = {"local/db01/pg/bench": Load(scripts=(Script(source="/gone/run/inputs/b/0-x.sql"),))}
    found = steps(script(result(phases=(Phase(loads=loads),)), record(), tmp_path / "inputs"), tmp_path)
    assert [call[0] for call in named(found, "take")] == [str(tmp_path / "inputs/b/0-x.sql")]


# ---- Control groups, on directories that only look like them


def grouped(tmp_path, mounts, own, calls):
    """Run the functions for groups; returns their files and output."""
    text = (Path(__file__).parents[2] / "src/pgherd/report/repeat/groups.sh").read_text()
    (tmp_path / "mounts").write_text(mounts)
    (tmp_path / "own").write_text(own)
    (tmp_path / "bin").mkdir()
    # A group's files go with it; those of a plain directory have to be removed first.
    remove = tmp_path / "bin/rmdir"
    remove.write_text('#!/bin/sh\nfor word; do [ "$word" = -- ] || rm -r "$word" || exit; done\n')
    remove.chmod(0o755)
    text = text.replace("/proc/mounts", f"{tmp_path}/mounts").replace("/proc/self/cgroup", f"{tmp_path}/own")
    head = 'set -eu\nwork=/w/repeat-1\nwarn() { echo "$*" >&2; }\ndie() { warn "$*"; exit 1; }\n'
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["sh"], input=f"{head}{text}\n{calls}\n", text=True, capture_output=True, env=environment, timeout=20)
    assert done.returncode == 0, done.stderr
    written = {str(file.relative_to(tmp_path / "fs")): file.read_text().strip() for file in (tmp_path / "fs").rglob("*") if file.is_file()}
    return written, done.stderr


CALLS = "find_groups || :\ntold\ngroup '' 200000 4096 ''\ngroup db01 25000 1024 50\n"


def test_version_1_has_a_directory_per_controller(tmp_path):
    for name in ("cpu,cpuacct/own", "memory"):
        (tmp_path / "fs" / name).mkdir(parents=True)
    mounts = f"cgroup {tmp_path}/fs/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup {tmp_path}/fs/memory cgroup rw,memory 0 0\n"
    own = "2:cpu,cpuacct:/own\n1:memory:/elsewhere\n0::/\n"
    written, said = grouped(tmp_path, mounts, own, CALLS)
    assert written == {
        "cpu,cpuacct/own/repeat-1/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/own/repeat-1/cpu.cfs_quota_us": "200000",
        "memory/repeat-1/memory.limit_in_bytes": "4096",
        "cpu,cpuacct/own/repeat-1/db01/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/own/repeat-1/db01/cpu.cfs_quota_us": "25000",
        "cpu,cpuacct/own/repeat-1/db01/cpu.shares": "512",
        "memory/repeat-1/db01/memory.limit_in_bytes": "1024",
    }
    assert not said


def test_version_1_is_tidied_up(tmp_path):
    for name in ("cpu", "memory"):
        (tmp_path / "fs" / name).mkdir(parents=True)
    mounts = f"cgroup {tmp_path}/fs/cpu cgroup rw,cpu 0 0\ncgroup {tmp_path}/fs/memory cgroup rw,memory 0 0\n"
    assert grouped(tmp_path, mounts, "2:cpu:/\n1:memory:/\n", CALLS + "remove_groups") == ({}, "")
    assert not list((tmp_path / "fs").glob("*/*"))


@pytest.mark.parametrize("delegated", [False, True])
def test_version_2_hands_controllers_down_and_takes_them_back(tmp_path, delegated):
    if not delegated and os.geteuid() != 0:
        pytest.skip("only root makes groups at the top")
    top = tmp_path / "fs"
    group = top / "user.slice" if delegated else top
    group.mkdir(parents=True)
    (group / "cgroup.subtree_control").write_text("cpu pids\n")
    if delegated:
        (top / "cgroup.type").touch()
    mounts = f"cgroup2 {top} cgroup2 rw,nosuid 0 0\n"
    prefix = "user.slice/" if delegated else ""
    written, said = grouped(tmp_path, mounts, f"0::/{prefix}\n", CALLS)
    assert {name.removeprefix(prefix): value for name, value in written.items() if "repeat-1/" in name} == {
        "repeat-1/cpu.max": "200000 100000",
        "repeat-1/memory.max": "4096",
        "repeat-1/cgroup.subtree_control": "+cpu +memory",
        "repeat-1/db01/cpu.max": "25000 100000",
        "repeat-1/db01/cpu.weight": "50",
        "repeat-1/db01/memory.max": "1024",
    }
    assert written[f"{prefix}cgroup.subtree_control"] == "+memory", "cpu was handed down before"
    assert (f"{prefix}repeat-1-leaf/cgroup.procs" in written) == delegated
    assert not said
    shutil.rmtree(tmp_path / "bin")
    (group / "cgroup.subtree_control").write_text("cpu pids\n")
    shutil.rmtree(group / "repeat-1")
    shutil.rmtree(group / "repeat-1-leaf", ignore_errors=True)
    written, said = grouped(tmp_path, mounts, f"0::/{prefix}\n", CALLS + "remove_groups")
    assert written[f"{prefix}cgroup.subtree_control"] == "-memory" and not said
    assert not list(group.glob("repeat*"))


@pytest.mark.parametrize("mounts", ["", "cgroup /nonexistent/cpu cgroup rw,cpu 0 0\ncgroup /nonexistent/memory cgroup rw,memory 0 0\n"])
def test_where_no_group_can_be_made_it_is_said(tmp_path, mounts):
    (tmp_path / "fs").mkdir()
    written, said = grouped(tmp_path, mounts, "0::/\n", CALLS + "join db01\nremove_groups")
    assert not written and "NO LIMITS" in said


def test_swap_of_the_runs_own_is_said_not_made():
    def around(swap):
        return record().model_copy(update={"environment": record().environment.model_copy(update={"swap": swap})})

    text = script(result(), around(Swap(kind="zram", size=2**29)))
    assert "# In the run these servers had zram swap of 512 MB." in text and "mkswap" not in text
    assert "had no swap." in script(result(), around(Swap(kind="none")))
    assert "swap" not in script(result(), record()).partition("set -eu")[0]


ZRAM = Swap(kind="zram", size=2**30)


def swap_record(swap=ZRAM, runtime="cgroup"):
    around = RunEnvironment(runtime=runtime, cores=2, memory=2**31, swap=swap)
    return RunRecord(run="r", study="consolidation", options={}, started=0.0, pgherd="0", environment=around)


def test_memory_is_taken_away_once_the_servers_are_warm():
    host = Host(memory=2**30)
    assert repro_script._initial_memory(host, swap_record()) == 2**31
    assert f"group '' '' {2**30} ''" in list(repro_script._reduce_memory(host, swap_record()))


@pytest.mark.parametrize(
    ("host", "run"),
    [
        (Host(memory=2**31), swap_record()),
        (Host(), swap_record()),
        (Host(memory=2**30), swap_record(swap=None)),
        (Host(memory=2**30), swap_record(swap=Swap(kind="none"))),
        (Host(memory=2**30), swap_record(runtime="process")),
    ],
)
def test_otherwise_it_is_so_from_the_beginning(host, run):
    assert repro_script._initial_memory(host, run) == host.memory
    assert not list(repro_script._reduce_memory(host, run))


def named_host(name, *containers):
    server = Server(bin="/pg/bin", version="18.6", databases=(Database(name="bench"),))
    return Host(name=name, containers=tuple(Container(name=one, servers=(server,)) for one in containers))


def hosts_result(*hosts, loads, volumes=()):
    trial = Trial(point={}, deployment=Deployment(hosts=hosts, volumes=volumes), phases=(Phase(loads=loads),))
    return TrialResult(id="0007", trial=trial, started=0, ended=1)


def test_of_several_hosts_it_is_the_first_with_servers():
    loads = {"b/db01/pg/bench": Load(clients=1), "c/db02/pg/bench": Load(clients=2)}
    volumes = tuple(Volume(name="fast", kind="directory", path="/x", host=name) for name in ("b", "c"))
    part, said = of_one_host(hosts_result(named_host("a"), named_host("b", "db01"), named_host("c", "db02"), loads=loads, volumes=volumes))
    assert said == "In the run 2 hosts did this at the same time: b, c. This is the part of b."
    assert [one.name for one in part.trial.deployment.hosts] == ["b"] and [one.host for one in part.trial.deployment.volumes] == ["b"]
    assert list(part.trial.phases[0].loads) == ["b/db01/pg/bench"]


def test_one_host_is_the_trial_itself():
    whole = hosts_result(named_host("b", "db01"), loads={"b/db01/pg/bench": Load()})
    assert of_one_host(whole) == (whole, "")
    beside = hosts_result(named_host("a"), named_host("b", "db01"), loads={"b/db01/pg/bench": Load()})
    assert of_one_host(beside) == (whole, "")


def test_clients_on_another_host_are_refused_with_both_names():
    with pytest.raises(UsageError, match="clients were on host a, its server on b, .* without --client-host"):
        of_one_host(hosts_result(named_host("b", "db01"), loads={"b/db01/pg/bench": Load(host="a")}))


def test_the_script_says_whose_part_it_is():
    loads = {"a/db01/pg/bench": Load(clients=1), "b/db02/pg/bench": Load(clients=2)}
    facts = {name: HostFacts(hostname=name, kernel="k", cores=2, logical_cpus=2, memory=2**33) for name in ("a", "b")}
    record = RunRecord(run="20260101-000000-density-ab12", study="density", options={}, started=0, pgherd="1", hosts=facts)
    text = script(hosts_result(named_host("a", "db01"), named_host("b", "db02"), loads=loads), record)
    assert "# In the run 2 hosts did this at the same time: a, b. This is the part of a." in text
    assert "a/db01/pg/bench" in text and "db02" not in text
