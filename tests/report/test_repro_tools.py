"""Trials of one tool as scripts. Those on external servers run with a pgbench that only notes how it was called."""

import json
import os
import shutil
import subprocess

import pytest

from pgherd.model.deployment import Container, Database, Deployment, Host, Link, Server, Volume
from pgherd.model.errors import UsageError
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunEnvironment, RunRecord
from pgherd.model.trial import Trial
from pgherd.report import repro_script, repro_tools
from pgherd.report.repro_script import script
from pgherd.report.repro_tools import command_script, fio_script, iperf3_script
from pgherd.studies.exec.options import ExecOptions
from pgherd.studies.exec.study import STUDY as EXEC
from pgherd.studies.network.options import NetworkOptions
from pgherd.studies.network.study import STUDY as NETWORK

HOSTILE = "host='/a b' dbname=$(touch x) user=`id`"
PGBENCH = """#!/usr/bin/python3
import json, os, sys, time
time.sleep(0.3 if "-c" in sys.argv and sys.argv[sys.argv.index("-c") + 1] == "7" else 0)
if "-t" in sys.argv:  # a try of one transaction before the load
    if os.environ.get("WRITABLE"):
        sys.exit("pgbench: error: client 0 aborted: ERROR:  division by zero")
    sys.exit()
with open(os.environ["NOTED"], "a") as file:
    file.write(json.dumps([sys.argv[1:], os.environ.get("PGOPTIONS")]) + chr(10))
print("tps = 12.5 (without initial connection time)")
"""


def result(*dsns, load=None):
    servers = {
        f"db{n:02d}": Server(bin="/pg/bin", version="18.6", dsn=dsn, databases=(Database(scale=3),)) for n, dsn in enumerate(dsns, 1)
    }
    containers = tuple(Container(name=name, runtime="external", servers=(server,)) for name, server in servers.items())
    loads = {f"local/{name}/pg/bench": load or Load(clients=2, client_placement="outside") for name in servers}
    phase = Phase(name="steady", warmup=0.5, seconds=2, loads=loads)
    trial = Trial(point={"clients": 2}, deployment=Deployment(hosts=(Host(containers=containers),)), phases=(phase,))
    return TrialResult(id="0003", trial=trial, started=0, ended=1)


EXTERNAL_RECORD = RunRecord(run="20260101-000000-scaling-ab12", study="scaling", options={}, started=0, pgherd="1")


def played(found, tmp_path):
    (tmp_path / "pgbench").write_text(PGBENCH)
    (tmp_path / "pgbench").chmod(0o755)
    file, noted = tmp_path / "repeat.sh", tmp_path / "noted"
    file.write_text(script(found, EXTERNAL_RECORD))
    environment = {"PATH": "/usr/bin:/bin", "BIN": str(tmp_path), "NOTED": str(noted), "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh", str(file)], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("tmp.*")), "its directory is gone"
    return done.stdout, [json.loads(line) for line in noted.read_text().splitlines()]


def test_each_server_gets_pgbench_by_its_dsn(tmp_path):
    out, calls = played(result("host=one dbname=app", HOSTILE), tmp_path)
    assert {arguments[-1] for arguments, _ in calls} == {"host=one dbname=app", HOSTILE}
    for arguments, options in calls:
        assert arguments[arguments.index("-T") + 1] == "3" and arguments[arguments.index("-c") + 1] == "2"
        assert not {"-h", "-p", "-U"} & set(arguments), "the DSN has the address"
        assert options == "-c default_transaction_read_only=on"
    assert out == "local/db01/pg/bench\ntps = 12.5 (without initial connection time)\n" + (
        "local/db02/pg/bench\ntps = 12.5 (without initial connection time)\n"
    )


def test_clients_under_sched_batch_are_started_by_chrt(tmp_path):
    found = result("host=one", load=Load(clients=2, client_placement="outside", sched_batch=True))
    assert ' chrt --batch 0 "$BIN"/pgbench ' in script(found, EXTERNAL_RECORD)
    _, ((_, options),) = played(found, tmp_path)
    assert options == "-c default_transaction_read_only=on"


def test_what_writes_may_write_and_takes_the_users_script(tmp_path):
    own = tmp_path / "it's own.sql"
    own.write_text("SELECT 1;")
    _, calls = played(result("host=one", load=Load(scripts=(Script(source=str(own), weight=4),), client_placement="outside")), tmp_path)
    ((arguments, options),) = calls
    assert options is None and f"{own}@4" in arguments


def test_nothing_runs_where_sessions_may_write(tmp_path):
    (tmp_path / "pgbench").write_text(PGBENCH)
    (tmp_path / "pgbench").chmod(0o755)
    noted, environment = tmp_path / "noted", {"PATH": "/usr/bin:/bin", "BIN": str(tmp_path), "TMPDIR": str(tmp_path), "WRITABLE": "1"}
    environment["NOTED"] = str(noted)
    done = subprocess.run(["sh"], input=script(result("host=one"), EXTERNAL_RECORD), env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "division by zero" in done.stderr and "Nothing was run" in done.stderr
    assert not noted.exists()
    writes = result("host=one", load=Load(scripts=(Script(source="builtin:tpcb-like"),), client_placement="outside"))
    done = subprocess.run(["sh"], input=script(writes, EXTERNAL_RECORD), env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and noted.exists(), "a load that writes needs no such session"


def test_only_where_all_is_theirs():
    assert repro_tools.uses_external_servers(result("host=one"))
    assert not repro_tools.uses_external_servers(result("host=one", load=Load(driver="fio", scripts=())))


def test_shellcheck_has_nothing_to_object(tmp_path):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is missing")
    file = tmp_path / "repeat.sh"
    file.write_text(script(result("host=one", HOSTILE), EXTERNAL_RECORD))
    done = subprocess.run(["shellcheck", "--exclude=SC2016", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


FIO = Load(driver="fio", clients=8, options={"rw": "randread", "bs": "8192", "size": str(2**20), "engine": "libaio", "ramp": "2"})


def fio_result(*volumes):
    deployment = Deployment(hosts=(Host(),), volumes=volumes)
    phase = Phase(warmup=2, seconds=2.5, loads={volume.name: FIO for volume in volumes})
    return TrialResult(id="0001", trial=Trial(point={"test": "random-read"}, deployment=deployment, phases=(phase,)), started=0, ended=1)


RECORD = RunRecord(run="r", study="disk", options={}, started=0, pgherd="1", tools={"fio": "3.33"})


def repeat(tmp_path, text, **environment):
    """Run the script with a fio that records its arguments and creates the requested file."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    fio = bin_ / "fio"
    fio.write_text(
        '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word" >>"$NOTES"; case $word in --filename=*) : >"${word#*=}";; '
        '--output=*) echo report >"${word#*=}";; esac; done\nprintf "%s\\n" -- >>"$NOTES"\n'
    )
    fio.chmod(0o755)
    env = {"PATH": f"{bin_}:{os.environ['PATH']}", "NOTES": str(tmp_path / "notes"), **environment}
    done = subprocess.run(["sh"], input=text, text=True, capture_output=True, env=env)
    notes = tmp_path / "notes"
    return done, notes.read_text().split("--\n")[:-1] if notes.exists() else []


def test_fio_one_volume_is_filled_loaded_and_left_as_it_was(tmp_path):
    place = tmp_path / "it's a $(disk)"
    place.mkdir()
    done, calls = repeat(tmp_path, fio_script(fio_result(Volume(name="d-0", path=str(place))), RECORD))
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2 and "--name=fill" in calls[0] and f"--size={2**20}" in calls[0]
    for word in ("--name=load", "--iodepth=8", "--rw=randread", "--runtime=3", "--ramp_time=1000ms", f"--filename={place}/repeat-"):
        assert word in calls[1]
    assert "--output" not in calls[1] and "--write_iops_log" not in calls[1]
    assert list(place.iterdir()) == []


def test_fio_several_volumes_are_loaded_at_once_and_each_reports(tmp_path):
    places = [tmp_path / name for name in ("a", "b")]
    for one in places:
        one.mkdir()
    text = fio_script(fio_result(*(Volume(name=one.name, path=str(one)) for one in places)), RECORD)
    done, calls = repeat(tmp_path, text, DIR_b=str(places[0]))
    assert done.returncode == 0, done.stderr
    assert len(calls) == 4 and done.stdout.split() == ["volume", "a:", "report", "volume", "b:", "report"]
    assert not any(str(places[1]) in call for call in calls), "the environment names another place"


@pytest.mark.parametrize("kind", ["loop", "device"])
def test_fio_what_pgherd_has_made_itself_must_be_named(tmp_path, kind):
    volume = Volume(name="v", kind=kind, path="/dev/x" if kind == "device" else None, size=2**30)
    done, calls = repeat(tmp_path, fio_script(fio_result(volume), RECORD))
    assert done.returncode != 0 and f"pgherd removed its {kind} volume" in done.stderr and calls == []


def test_fio_names_cannot_break_out_of_a_comment(tmp_path):
    text = fio_script(fio_result(Volume(name="v", path="/x\ntouch /tmp/pwned")), RECORD)
    assert "\ntouch" not in text.replace("'/x\ntouch /tmp/pwned'", "")


def test_fio_of_several_hosts_it_is_what_the_first_did(tmp_path):
    place = tmp_path / "a"
    place.mkdir()
    own = [Volume(name="d0", path=str(place), host=host) for host in ("a", "b")]
    deployment = Deployment(hosts=(Host(name="a"), Host(name="b")), volumes=tuple(own))
    phase = Phase(warmup=2, seconds=2.5, loads={volume.target: FIO for volume in own})
    trial = Trial(point={"test": "random-read"}, deployment=deployment, phases=(phase,))
    text = fio_script(TrialResult(id="0001", trial=trial, started=0, ended=1), RECORD)
    assert "In the run 2 hosts did this at the same time: a, b. This is the part of a." in text
    done, calls = repeat(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2 and f"--filename={place}/repeat-" in calls[1]


RECORD = RunRecord(run="r", study="network", options={}, started=0, pgherd="1", tools={"iperf3": "3.12"})


def iperf3_result(link, streams=2):
    options = NetworkOptions(links=(link,), streams=(1, streams), host_cores=2)
    trial = next(one for one in NETWORK.propose(options, []).trials if one.point["streams"] == streams)
    target = TargetResult(target=link.name, driver="iperf3", transactions=1, throughput=1, first=0, last=1, values={"bits_per_second": 2e8})
    phase = PhaseResult(phase="steady", start=0, end=6, overlap=1, targets=[target])
    return TrialResult(id="0001", trial=trial, started=0, ended=1, phases=[phase])


def shellcheck(text):
    if shutil.which("shellcheck"):
        told = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout


def test_iperf3_a_remote_link_is_one_command_and_what_must_run_there():
    text = iperf3_script(iperf3_result(Link(name="db2", host="db2", port=5300)), RECORD)
    assert text.splitlines()[-1] == ("iperf3 --client db2 --port 5300 --parallel 2 --time 6 --interval 1 --connect-timeout 5000 --omit 2")
    assert "'iperf3 --server --port 5300' must run on db2" in text and "200.0 Mbit/s on db2 over 6.00 s" in text
    shellcheck(text)


def test_iperf3_namespaces_are_made_and_shaped_in_the_script():
    text = iperf3_script(iperf3_result(Link(name="n", kind="namespaces", rate=2e8, delay=5)), RECORD)
    for words in ("unshare --net sleep infinity", "netem delay 5ms", "parent 1: tbf rate 200000000bit", "trap "):
        assert words in text
    shellcheck(text)


def test_iperf3_show_takes_it_from_here():
    assert "iperf3 --client db2" in repro_script.script(iperf3_result(Link(name="db2", host="db2")), RECORD)


def test_iperf3_a_hostile_name_stays_a_comment():
    text = iperf3_script(iperf3_result(Link(name="x", host="h")), RECORD.model_copy(update={"run": "r\nrm -rf /"}))
    assert "\nrm" not in text


def test_iperf3_several_loads_are_no_one_command():
    one = iperf3_result(Link(name="db2", host="db2"))
    trial = one.trial.model_copy(update={"phases": one.trial.phases * 2})
    with pytest.raises(UsageError, match="several links"):
        iperf3_script(one.model_copy(update={"trial": trial}), RECORD)


def test_iperf3_between_two_hosts_both_ends_are_told():
    text = iperf3_script(iperf3_result(Link(name="b", kind="hosts", near="a", host="10.0.0.2", port=5300)), RECORD)
    assert "For host a. First, on host b: iperf3 --server --one-off --bind 10.0.0.2 --port 5300" in text
    assert text.splitlines()[-1].startswith("iperf3 --client 10.0.0.2 --port 5300 --parallel 2")
    shellcheck(text)


RECORD = RunRecord(
    run="r",
    study="exec",
    options={},
    started=0,
    pgherd="1",
    environment=RunEnvironment(runtime="process", run_as="bench", cores=1, memory=1),
)


def command_result(*words, **changes):
    trial = EXEC.propose(ExecOptions(command=words or ("echo", "x"), host_cores=1, **changes), []).trials[0]
    values = {"duration_seconds": 1.5, "value:rate": 250.0}
    targets = [TargetResult(target="local", driver="command", transactions=1, throughput=1, first=0, last=1, values=values)]
    return TrialResult(
        id="0001", trial=trial, started=0, ended=1, phases=[PhaseResult(phase="p", start=0, end=1, overlap=1, targets=targets)]
    )


def test_command_the_script_does_what_the_run_did(tmp_path):
    marker = "a b; $HOME `x` 'q'"
    text = command_script(command_result("printenv", "A", cwd=str(tmp_path), env={"A": marker}), RECORD)
    assert (
        "It ran as user bench." in text and "In the run, duration seconds was 1.5 (local)." in text and "In the run, rate was 250" in text
    )
    file = tmp_path / "repeat.sh"
    file.write_text(text)
    around = {"PATH": "/usr/bin:/bin", "SECRET": "1", "A": marker}  # the value is not recorded
    told = subprocess.run(["sh", str(file)], capture_output=True, text=True, env=around)
    assert marker not in text
    assert told.returncode == 0 and told.stdout == marker + "\n", told
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", "--exclude=SC2016", str(file)], capture_output=True).returncode == 0


def test_command_the_caller_s_environment_does_not_reach_it(tmp_path):
    text = command_script(command_result("env"), RECORD)
    told = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "SECRET": "1"})
    assert told.returncode == 0 and set(told.stdout.split()) == {"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}


def test_command_one_that_is_ended_by_the_clock_is_here_too():
    assert "timeout 12 sleep 60" in command_script(command_result("sleep", "60", duration=10.0, warmup=2.0), RECORD)
    assert "timeout" not in command_script(command_result("sleep", "60"), RECORD)


def test_command_root_s_command_says_so():
    assert "It ran as user root." in command_script(command_result(as_root=True), RECORD)


def test_command_show_takes_it_from_here():
    assert "echo x" in repro_script.script(command_result(), RECORD)


def test_command_several_hosts_are_said():
    assert "2 hosts did this at the same time: a, b" in command_script(command_result(hosts=("a", "b")), RECORD)


def test_command_what_no_shell_can_say_is_refused():
    with pytest.raises(UsageError, match="NUL"):
        command_script(command_result("echo", "a\0b"), RECORD)
    one = command_result()
    trial = one.trial.model_copy(update={"phases": one.trial.phases * 2})
    with pytest.raises(UsageError, match="several phases"):
        command_script(one.model_copy(update={"trial": trial}), RECORD)


def test_command_a_hostile_name_stays_a_comment():
    assert "\nrm" not in command_script(command_result(), RECORD.model_copy(update={"run": "r\nrm -rf /"}))


def test_command_values_of_variables_are_asked_for(tmp_path):
    options = {"argv": '["sh", "-c", "env"]', "env:TOKEN": "***", "env:LC_ALL": "***"}
    load = Load(driver="command", options=options)
    trial = Trial(point={"hosts": 1}, deployment=Deployment(hosts=(Host(),)), phases=(Phase(loads={"local": load}, until="drivers"),))
    text = command_script(TrialResult(id="0001", trial=trial, started=0, ended=1), RECORD)
    shellcheck(text)
    around = {"PATH": "/usr/bin:/bin", "OTHER": "1\nX=2", "TOKEN": "s3 cret", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env=around)
    lines = set(done.stdout.splitlines())
    assert done.returncode == 0 and {"TOKEN=s3 cret", "LC_ALL=C.UTF-8", "TZ=UTC"} <= lines and "OTHER=1" not in lines, done
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
    assert done.returncode != 0 and "TOKEN: is not set" in done.stderr
