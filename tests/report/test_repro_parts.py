"""Scripts of hostile runs, and directories of volumes. Steps of a whole script: test_commands.py; that they work: tests/it.

Each text of a record and a trial gets line breaks, quotes and control characters, and no part of it is executed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pgherd.model.deployment import Container, Database, Deployment, Host, InitData, Link, Server, Volume
from pgherd.model.errors import PgherdError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Load, Phase, Script, TimeSlicing
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunEnvironment, RunRecord, Swap
from pgherd.model.trial import Trial
from pgherd.report import repro_parts, repro_script
from pgherd.report.repro_parts import comment, join, quote, say

HOSTILE_PARTS = (
    ">marker",
    "\n",
    "\r",
    "\n>marker\n",
    "'\n>marker\n'",
    "';>marker;'",
    '";>marker;"',
    "$(>marker)",
    "`>marker`",
    "#",
    "END",
    "SQL",
)
HOSTILE_PARTS += (
    "\\",
    "\x1b[2J",
    "\x07",
    "\x0b",
    "\x85",
    "\u2028",
    "\u202e",
    ")",
    "}",
    "&",
    "|",
    "<<'END'\n",
    "\nEND\n>marker\n",
    " ",
    "\t",
    "é",
)
STEPS = (
    "create",
    "settings",
    "start",
    "ready",
    "client",
    "quietly",
    "settle",
    "loaded",
    "copy",
    "warm",
    "run",
    "report",
    "take",
    "size",
    "cd",
)
STEPS += ("on_disk", "find_groups", "told", "group", "data", "wal", "space", "temporary", "spread", "reserve", "transparent", "nsenter")
SETPRIV = shutil.which("setpriv") or "/usr/bin/setpriv"
PROGRAMS = ("env", "fio", "grep", "id", "ip", "iperf3", "kill", "nsenter", "pgbench", "rm", "sed", "sleep", "tc", "timeout", "unshare")


def _record(study, **changes):
    facts = HostFacts(hostname="h", kernel="k", cores=8, logical_cpus=8, memory=2**34)
    swap = Swap(kind="file", size=2**20, path="/swap")
    environment = RunEnvironment(runtime="cgroup", run_as="pgherd", cores=8, memory=2**33, swap=swap)
    tools = {"fio": "3.33", "iperf3": "3.12"}
    record = RunRecord(
        run="r", study=study, options={}, environment=environment, started=0, pgherd="1", hosts={"local": facts}, tools=tools
    )
    return record.model_copy(update=changes)


def _result(deployment, *phases, driver="pgbench", values=None, **changes):
    measured = [
        PhaseResult(
            phase=phase.name, start=0, end=2, overlap=1,
            targets=[
                TargetResult(target=target, driver=driver, transactions=1, throughput=1, first=0, last=1, values=values or {})
                for target in phase.loads
            ],
        )
        for phase in phases
    ]  # fmt: skip
    trial = Trial(point={"variant": "a"}, deployment=deployment, phases=phases, **changes)
    return TrialResult(id="0001", trial=trial, started=0, ended=1, phases=measured)


def servers():
    volumes = (Volume(name="d-1", path="/disk 1"), Volume(name="l", kind="loop", size=2**30))
    databases = (
        Database(workload="script", init="/home/u/init.sql", init_data=InitData(directory="/home/u", files=("a.csv",))),
        Database(name="second", partitions=2),
        Database(name="third", workload="random-block"),
    )
    first = Server(
        bin="/pg/bin", version="18.6", settings={"shared_buffers": "40MB", "my.name": "x", "huge_pages": "on"}, databases=databases,
        volumes={"data": "d-1", "wal": "l", "temp": "l"}, tablespaces=("d-1", "l"), transparent_huge_pages=True,
    )  # fmt: skip
    containers = (
        Container(name="a", runtime="cgroup", servers=(first,)),
        Container(name="b", servers=(first,), vcpus=1, cpu_mode="cpuset"),
    )
    load = Load(scripts=(Script(source="/home/u/one.sql", name="one"), Script(source="builtin:select-only")))
    loads = {"local/a/pg/bench": load, "local/b/pg/second": Load(protocol="simple")}
    sliced = Phase(name="sliced", loads=loads, slices=TimeSlicing(of={"one": "a", "other": "b"}, seconds=1, counted=0.5))
    hosts = (Host(cores=4, memory=2**32, containers=containers), Host(name="z", containers=(Container(name="c", servers=(first,)),)))
    return _result(Deployment(hosts=hosts, volumes=volumes), Phase(loads=loads), sliced, probe="database-size"), _record("compare")


def external():
    server = Server(bin="/pg/bin", version="18.6", dsn="host=one dbname=app", databases=(Database(),))
    hosts = (Host(containers=(Container(name="db01", runtime="external", servers=(server,)),)),)
    load = Load(scripts=(Script(source="/home/u/one.sql", name="one"),), client_placement="outside")
    return _result(Deployment(hosts=hosts), Phase(loads={"local/db01/pg/bench": load})), _record("scaling")


def fio():
    options = {"rw": "randread", "bs": "8192", "size": str(2**20), "engine": "libaio", "ramp": "2"}
    volumes = tuple(Volume(name=name, path=f"/{name}", host=host) for host in ("a", "b") for name in ("d-1", "e"))
    loads = {volume.target: Load(driver="fio", options=options) for volume in volumes}
    return _result(Deployment(hosts=(Host(name="a"), Host(name="b")), volumes=volumes), Phase(loads=loads), driver="fio"), _record("disk")


def iperf3(**link):
    link = Link(name="n", **link)
    deployment = Deployment(hosts=(Host(),), links=(link,))
    phase = Phase(loads={link.target: Load(driver="iperf3")})
    return _result(deployment, phase, driver="iperf3", values={"bits_per_second": 1e9}), _record("network")


def command():
    options = {"argv": '["printenv", "A"]', "cwd": "/", "env:A": "b", "value:rate": "x"}
    load = Load(driver="command", options=options)
    return _result(
        Deployment(hosts=(Host(), Host(name="b"))), Phase(loads={"local": load, "b": load}), driver="command", values={"value:rate": 1}
    ), _record("exec")


CASES = {
    "servers": servers,
    "external": external,
    "fio": fio,
    "remote link": lambda: iperf3(host="db2"),
    "link between hosts": lambda: iperf3(kind="hosts", near="m", host="10.0.0.2"),
    "namespaces": lambda: iperf3(kind="namespaces", rate=2e8, delay=5),
    "command": command,
}


def _places(node, place=()):
    """Yield the place of each string in a document: of values, and of keys ('key', name)."""
    if isinstance(node, str):
        yield place
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _places(item, (*place, index))
    elif isinstance(node, dict):
        for name, item in node.items():
            yield from _places(item, (*place, name))
            yield (*place, ("key", name))


def _with(node, place, change):
    """Return a copy of a document with the string at this place changed."""
    if not place:
        return change(node)
    first, *rest = place
    if isinstance(first, tuple):
        return {change(name) if name == first[1] else name: item for name, item in node.items()}
    if isinstance(node, list):
        return [_with(item, rest, change) if index == first else item for index, item in enumerate(node)]
    return {name: _with(item, rest, change) if name == first else item for name, item in node.items()}


@functools.cache
def open_places(name, front):
    """Return the places of the case's strings, by document, that take any text: both stay valid, and a script can be made."""
    models = [*CASES[name]()]
    documents = [models[0].model_dump(mode="json"), models[1].model_dump(mode="json", by_alias=True)]
    places = [], []
    for number, model in enumerate((TrialResult, RunRecord)):
        for place in list(_places(documents[number])):
            trial = [*models]
            try:
                document = _with(documents[number], place, lambda old: "\n\"'$ " + old if front else old + "\n\"'$ ")
                trial[number] = model.model_validate(document)
                repro_script.script(*trial)
            except (ValidationError, PgherdError, KeyError, ValueError):  # the model or the study rejects it, or another name refers to it
                continue
            documents[number], models = document, trial
            places[number].append(place)
    return places


def poisoned(name, text, front):
    """Return the case's trial and record with the text in each of these strings."""
    result, record = CASES[name]()
    documents = [result.model_dump(mode="json"), record.model_dump(mode="json", by_alias=True)]
    for number, places in enumerate(open_places(name, front)):
        for place in places:  # a key follows what is below it
            documents[number] = _with(documents[number], place, lambda old: text + old if front else old + text)
    return TrialResult.model_validate(documents[0]), RunRecord.model_validate(documents[1])


def executed(text, tmp_path):
    """Execute each line of a script with programs that do nothing, as an account without rights.

    Returns the markers and the finished process.
    """
    place = tmp_path / "place"
    shutil.rmtree(place, ignore_errors=True)
    stubs, work = place / "bin", place / "work"
    for directory in (place, stubs, work):
        directory.mkdir()
        directory.chmod(0o777)
    for name in PROGRAMS:
        (stubs / name).write_text("#!/bin/sh\nexit 0\n")
    (stubs / "mktemp").write_text(f"#!/bin/sh\necho '{work}'\n")
    (stubs / "cat").write_text("#!/bin/sh\nexec /bin/cat </dev/null\n")
    (stubs / "mkdir").write_text('#!/bin/sh\nexec /bin/mkdir "$@"\n')
    for stub in stubs.iterdir():
        stub.chmod(0o755)
    file = place / "script.sh"
    file.write_text(text.replace("\nset -eu\n", "\n", 1) + "\n>ended\n", encoding="utf-8", errors="replace")
    environment = {"PATH": str(stubs), "BIN": str(stubs), "A": "b", "DIR_d_1": str(work), "DIR_e": str(work), "DIR_l": str(work)}
    drop = [SETPRIV, "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*drop, "/bin/sh", str(file)], cwd=place, env=environment, capture_output=True, text=True, timeout=20, errors="replace"
    )
    found = [*place.rglob("marker*")]
    assert (place / "ended").exists(), done.stderr
    return found, done


@pytest.fixture
def open_directory(tmp_path):
    """A directory that another account can reach."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and str(directory).startswith("/tmp/"):
            directory.chmod(directory.stat().st_mode | 0o711)
    return tmp_path


hostile_texts = st.lists(st.sampled_from(HOSTILE_PARTS), min_size=1, max_size=5).map("".join)


@pytest.mark.parametrize("name", CASES)
@given(text=hostile_texts, front=st.booleans())
@settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_no_text_of_a_run_is_executed(name, text, front, open_directory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repro_script, "_functions", lambda which: "\n".join(f"{step}() {{ :; }}" for step in STEPS))
        script = repro_script.script(*poisoned(name, text, front))
    assert sum(map(len, open_places(name, front))) > 5
    found, done = executed(script, open_directory)
    assert not found, script
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("name", CASES)
def test_each_script_of_the_property_is_executed_to_its_end(name, open_directory, monkeypatch):
    monkeypatch.setattr(repro_script, "_functions", lambda which: "\n".join(f"{step}() {{ :; }}" for step in STEPS))
    script = repro_script.script(*CASES[name]())
    assert executed(script, open_directory)[0] == []
    assert executed(f"{script}\n# a name\n>marker\n", open_directory)[0], "the marker is found"


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (Phase, {"name": "steady'\ntouch x #"}),
        (Link, {"name": "n", "kind": "hosts", "near": "a\nb", "host": "h"}),
        (Volume, {"name": "v", "host": "a\nb"}),
        (PhaseResult, {"phase": "a\nb", "start": 0, "end": 1, "overlap": 1, "targets": []}),
        (TargetResult, {"target": "db2\ntouch x #", "driver": "iperf3", "transactions": 1, "throughput": 1, "first": 0, "last": 1}),
    ],
)
def test_names_have_no_line_breaks(model, fields):
    with pytest.raises(ValidationError, match="pattern"):
        model(**fields)


@given(hostile_texts | st.text())
def test_a_comment_is_one_line(text):
    line = comment(text)
    assert line.startswith("# ") and len(line.splitlines()) == 1 and line[2:].isprintable()


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
@settings(max_examples=50, deadline=None)
def test_a_quoted_text_is_one_word(text):
    done = subprocess.run(["sh", "-c", f"printf '%s|' {join([text, 'x'])}"], capture_output=True)
    assert done.stdout.decode() == f"{text}|x|"


def test_placeholders_become_variables():
    assert quote("-D\0W\0/a b\0W\0", {"\0W\0": '"$work"'}) == """-D"$work"'/a b'"$work\""""
    assert quote("") == "''"
    with pytest.raises(UsageError, match="NUL"):
        quote("a\0b", {"\0W\0": '"$work"'})


def test_a_printed_line_has_no_escapes():
    done = subprocess.run(["sh", "-c", say("a\\033[2J\x1b b")], capture_output=True, text=True)
    assert done.stdout == "a\\033[2J\N{REPLACEMENT CHARACTER} b\n"


def deployment(*servers: Server, volumes: tuple[Volume, ...]) -> Deployment:
    return Deployment(hosts=(Host(containers=(Container(name="db01", servers=servers),)),), volumes=volumes)


VOLUMES = (Volume(name="on-data", path="/it's here"), Volume(name="spare", path="/spare"), Volume(name="lo", kind="loop", size=2**30))
SERVER = Server(bin="/pg", version="18.6", volumes={"data": "on-data", "wal": "lo"}, tablespaces=("on-data", "lo"))


def test_only_volumes_that_servers_use_are_asked_for() -> None:
    given = deployment(SERVER, SERVER.model_copy(update={"name": "second"}), volumes=VOLUMES)
    assert {name: parts for name, (_, parts) in repro_parts.used_volumes(given).items()} == {
        "on-data": ["data", "tables and indexes"],
        "lo": ["WAL", "tables and indexes"],
    }
    assert list(repro_parts.environment_comments(given)) == [
        "# DIR_on_data, directory for the servers' data and tables and indexes (in the run: /it's here).",
        "# DIR_lo, directory for the servers' WAL and tables and indexes (in the run: a loop volume made by pgherd).",
    ]
    assert list(repro_parts.default_lines(deployment(volumes=VOLUMES))) == []


def test_a_directory_is_where_it_was_unless_another_is_named() -> None:
    line = repro_parts.default_line(VOLUMES[0])
    for environment, wanted in (({}, "/it's here"), ({"DIR_on_data": "/else"}, "/else")):
        done = subprocess.run(["sh", "-euc", f'{line}\nprintf %s "$DIR_on_data"'], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, wanted)


def test_without_tablespaces_nothing_is_asked_of_a_running_server() -> None:
    plain = Server(bin="/pg", version="18.6")
    assert list(repro_parts.tablespace_lines("db01.pg", plain)) == [] and list(repro_parts.relations_lines([plain])) == []
    assert list(repro_parts.copy_lines("loaded1", "db01.pg", plain)) == ["copy loaded1 db01.pg"]
    assert "pg_relation_size" in "\n".join(repro_parts.relations_lines([plain, SERVER]))
