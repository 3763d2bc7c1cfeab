"""The script that repeats a trial of fio: run here with a fio that only notes its words."""

import os
import subprocess

import pytest

from pgherd.model.deployment import Deployment, Host, Volume
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.report.repro_script import script

FIO = Load(driver="fio", clients=8, options={"rw": "randread", "bs": "8192", "size": str(2**20), "engine": "libaio", "ramp": "2"})


def result(*volumes):
    deployment = Deployment(hosts=(Host(),), volumes=volumes)
    phase = Phase(ramp=2, seconds=2.5, loads={volume.name: FIO for volume in volumes})
    return TrialResult(id="0001", trial=Trial(point={"test": "random-read"}, deployment=deployment, phases=(phase,)), started=0, ended=1)


RECORD = RunRecord(run="r", study="disk", options={}, started=0, pgherd="1", tools={"fio": "3.33"})


def repeat(tmp_path, text, **environment):
    """Run the script with a fio that notes its words and makes what it is told to make."""
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


def test_one_volume_is_filled_loaded_and_left_as_it_was(tmp_path):
    place = tmp_path / "it's a $(disk)"
    place.mkdir()
    done, calls = repeat(tmp_path, script(result(Volume(name="d-0", path=str(place))), RECORD))
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2 and "--name=fill" in calls[0] and f"--size={2**20}" in calls[0]
    for word in ("--name=load", "--iodepth=8", "--rw=randread", "--runtime=3", "--ramp_time=1000ms", f"--filename={place}/repeat-"):
        assert word in calls[1]
    assert "--output" not in calls[1] and "--write_iops_log" not in calls[1]
    assert list(place.iterdir()) == []


def test_several_volumes_are_loaded_at_once_and_each_reports(tmp_path):
    places = [tmp_path / name for name in ("a", "b")]
    for one in places:
        one.mkdir()
    text = script(result(*(Volume(name=one.name, path=str(one)) for one in places)), RECORD)
    done, calls = repeat(tmp_path, text, DIR_b=str(places[0]))
    assert done.returncode == 0, done.stderr
    assert len(calls) == 4 and done.stdout.split() == ["volume", "a:", "report", "volume", "b:", "report"]
    assert not any(str(places[1]) in call for call in calls), "the environment names another place"


@pytest.mark.parametrize("kind", ["loop", "device"])
def test_what_pgherd_has_made_itself_must_be_named(tmp_path, kind):
    volume = Volume(name="v", kind=kind, path="/dev/x" if kind == "device" else None, size=2**30)
    done, calls = repeat(tmp_path, script(result(volume), RECORD))
    assert done.returncode != 0 and f"a {kind} volume that pgherd made" in done.stderr and calls == []


def test_names_cannot_break_out_of_a_comment(tmp_path):
    text = script(result(Volume(name="v", path="/x\ntouch /tmp/pwned")), RECORD)
    assert "\ntouch" not in text.replace("'/x\ntouch /tmp/pwned'", "")


def test_of_several_hosts_it_is_what_the_first_did(tmp_path):
    place = tmp_path / "a"
    place.mkdir()
    own = [Volume(name="d0", path=str(place), host=host) for host in ("a", "b")]
    deployment = Deployment(hosts=(Host(name="a"), Host(name="b")), volumes=tuple(own))
    phase = Phase(ramp=2, seconds=2.5, loads={volume.target: FIO for volume in own})
    trial = Trial(point={"test": "random-read"}, deployment=deployment, phases=(phase,))
    text = script(TrialResult(id="0001", trial=trial, started=0, ended=1), RECORD)
    assert "In the run 2 hosts did this at the same time: a, b. This is what a did." in text
    done, calls = repeat(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2 and f"--filename={place}/repeat-" in calls[1]
