import shutil
import subprocess

import pytest

from pgherd.model.deployment import Link
from pgherd.model.errors import UsageError
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import repro_script
from pgherd.report.repro_tools import iperf3_script
from pgherd.studies.network.options import NetworkOptions
from pgherd.studies.network.study import STUDY

RECORD = RunRecord(run="r", study="network", options={}, started=0, pgherd="1", tools={"iperf3": "3.12"})


def result(link, streams=2):
    options = NetworkOptions(links=(link,), streams=(1, streams), cores=2)
    trial = next(one for one in STUDY.propose(options, []).trials if one.point["streams"] == streams)
    target = TargetResult(target=link.name, driver="iperf3", transactions=1, throughput=1, first=0, last=1, values={"bits_per_second": 2e8})
    phase = PhaseResult(phase="steady", start=0, end=6, overlap=1, targets=[target])
    return TrialResult(id="0001", trial=trial, started=0, ended=1, phases=[phase])


def shellcheck(text):
    if shutil.which("shellcheck"):
        told = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout


def test_a_remote_link_is_one_command_and_what_must_run_there():
    text = iperf3_script(result(Link(name="db2", host="db2", port=5300)), RECORD)
    assert text.splitlines()[-1] == ("iperf3 --client db2 --port 5300 --parallel 2 --time 6 --interval 1 --connect-timeout 5000 --omit 2")
    assert "'iperf3 --server --port 5300' must run on db2" in text and "200.0 Mbit/s on db2 over 6.00 s" in text
    shellcheck(text)


def test_namespaces_are_made_and_shaped_in_the_script():
    text = iperf3_script(result(Link(name="n", kind="namespaces", rate=2e8, delay=5)), RECORD)
    for words in ("unshare --net sleep infinity", "netem delay 5ms", "parent 1: tbf rate 200000000bit", "trap "):
        assert words in text
    shellcheck(text)


def test_show_takes_it_from_here():
    assert "iperf3 --client db2" in repro_script.script(result(Link(name="db2", host="db2")), RECORD)


def test_a_hostile_name_stays_a_comment():
    text = iperf3_script(result(Link(name="x", host="h")), RECORD.model_copy(update={"run": "r\nrm -rf /"}))
    assert "\nrm" not in text


def test_several_loads_are_no_one_command():
    one = result(Link(name="db2", host="db2"))
    trial = one.trial.model_copy(update={"phases": one.trial.phases * 2})
    with pytest.raises(UsageError, match="several links"):
        iperf3_script(one.model_copy(update={"trial": trial}), RECORD)


def test_between_two_hosts_both_ends_are_told():
    text = iperf3_script(result(Link(name="b", kind="hosts", near="a", host="10.0.0.2", port=5300)), RECORD)
    assert "For host a. First, on host b: iperf3 --server --one-off --bind 10.0.0.2 --port 5300" in text
    assert text.splitlines()[-1].startswith("iperf3 --client 10.0.0.2 --port 5300 --parallel 2")
    shellcheck(text)
