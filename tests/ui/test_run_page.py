from __future__ import annotations

import fcntl
import json
import os
import re
import time
from dataclasses import replace

import pytest

from pgherd.report.live_status import LiveDevice
from pgherd.store.live_state import LiveContainer, LivePhase, LiveState, LiveTrial, read_live, write_live
from pgherd.store.run_directory import RunDirectory

FIRST = "20260131-120000-density-0001"


def change(runs, **fields) -> None:
    file = runs / FIRST / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_a_finished_run(client, runs):
    (runs / FIRST / "report.html").write_text("<p>report</p>")
    (runs / FIRST / "tables").mkdir()
    (runs / FIRST / "tables" / "density.csv").write_text("a\n")
    text = client.get(f"/runs/{FIRST}").text
    assert "Grade B" in text and "Full report" in text and "Show samples" in text and "tables/density.csv" in text
    assert "steal" in text and "not finished" in text and "hx-get" not in text and "Stop" not in text


def test_an_interrupted_run_can_be_gone_on_with(client, runs):
    environment = {"runtime": "process", "cores": 1.0, "memory": 2**30}
    change(runs, state="interrupted", analysis=None, error="interrupted by the user", environment=environment)
    text = client.get(f"/runs/{FIRST}").text
    assert "No answer: this run was interrupted by" in text and f"/runs/{FIRST}/resume" in text


def test_a_run_whose_process_was_killed_is_no_longer_running(client, runs):
    change(runs, state="running", analysis=None, ended=None)
    with open(runs / FIRST / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = client.get(f"/runs/{FIRST}").text
        assert "Density is running</h1>" in text and " UTC to now on " in text
    text = client.get(f"/runs/{FIRST}").text
    assert text.count("No answer: this run is interrupted: its process was killed.") == 2, "its title and its heading"
    assert "state-interrupted" in text and "Density is running" not in text and " to now on " not in text and " UTC on " in text


@pytest.fixture
def running(runs):
    """The first run as one that is being executed: its lock held, a trial in its measured period, samples growing."""
    change(runs, state="running", analysis=None, ended=None)
    directory = runs / FIRST
    partial = directory / "trials" / "0099.partial"
    partial.mkdir()
    now = time.time()
    sources = [
        ["cpu", "host", "file", "/proc/stat", ""],
        ["cgroup_cpu", "container:c01", "file", "x", "v1 usage"],
        ["cgroup_memory", "container:c01", "file", "y", "usage"],
    ]
    lines = [{"sources": sources, "first": 0}]
    for second in range(4):
        at = now - 4 + second
        lines.append({"t": at, "i": 0, "raw": f"cpu  {150 * second} 0 0 {50 * second} 0 0 0 0 0 0\ncpu0 0\ncpu1 0\n"})
        lines.append({"t": at, "i": 1, "raw": str(500_000_000 * second)})
        lines.append({"t": at, "i": 2, "raw": str(2**28)})
    (partial / "spool.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    trial = LiveTrial(
        number=99,
        point={"databases": 1},
        repeat=2,
        reason="planned",
        begun=now - 5,
        phases=(LivePhase(name="steady", warmup=1, seconds=30, loads={"local/c01/pg/bench": "pgbench"}),),
        containers={"c01": LiveContainer(vcpus=1.0, memory=2**29)},
    )
    state = LiveState(pid=os.getpid(), written=now, trials_remaining=3, seconds_left=40.0, trial=trial, phase=0, phase_begun=now - 5)
    write_live(directory, state)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def test_a_running_run_is_watched(client, running):
    text = client.get(f"/runs/{FIRST}").text
    assert "Density is running" in text and f'hx-get="/runs/{FIRST}/live"' in text and 'hx-trigger="every 1s"' in text
    assert "Trial 99: databases 1, repeat 2: measuring, 4 of 30 s" in text and "Stop …" in text


def test_the_part_that_changes(client, running):
    text = client.get(f"/runs/{FIRST}/live").text
    assert "<html" not in text and "left" in text and "0.50 of 1 cores" in text and "256 MB of 512 MB" in text
    bar = re.search(r'<progress max="(\d+)" value="([\d.]+)"', text)
    assert bar and int(bar[1]) > float(bar[2]) > int(float(bar[2])), "the trial that runs moves it, too"
    assert "1.50 cores" in text and '<path class="line"' in text and "<h3>Checks</h3>" in text and "tainted" in text


def test_rates_of_disks_are_in_powers_of_1000(client, site, running, monkeypatch):
    snapshot = site.live.poll(RunDirectory(running))
    disk = LiveDevice(name="sda", reads=1.0, writes=2.0, read_bytes=1.5e6, write_bytes=2.5e9)
    shown = replace(snapshot, present=snapshot.present.model_copy(update={"devices": [disk]}))
    monkeypatch.setattr(site.live, "poll", lambda directory: shown)
    text = client.get(f"/runs/{FIRST}/live").text
    assert '<td class="n">1.5 MB/s</td>' in text and '<td class="n">2.5 GB/s</td>' in text


def test_blocks_of_a_search_show_whether_they_pass(client, running, runs):
    objective = {"percentile": 99.0, "limit_ms": 10.0}
    change(runs, options={**json.loads((runs / FIRST / "run.json").read_text())["options"], "objectives": [objective]})
    trials = {file: json.loads(file.read_text()) for file in sorted((runs / FIRST / "trials").glob("*/trial.json"))}
    file, trial = [(file, trial) for file, trial in trials.items() if trial["phases"]][-1]
    for load in trial["trial"]["phases"][0]["loads"].values():
        load["objectives"] = [objective]
    for target in trial["phases"][0]["targets"]:
        target["values"] = {"logged_tx": 1000.0, "late_p99_10ms_tx": 11.0}
    file.write_text(json.dumps(trial))
    assert client.get(f"/runs/{FIRST}/live").text.count(": misses by percentile</td>") == 1


def test_several_hosts_are_shown_each_and_together(client, running, runs):
    record = json.loads((runs / FIRST / "run.json").read_text())
    (facts,) = record["hosts"].values()
    hosts = {name: {**facts, "logical_cpus": 2} for name in ("db1", "db2")}
    over = {"address": "default", "hosts": [{"name": name} for name in hosts]}
    change(runs, hosts=hosts, environment={"runtime": "cgroup", "cores": 4.0, "memory": 2**30, "cluster": over})
    now = time.time()
    lines = [{"sources": [[sampler, f"host:{name}", "read on", name, ""] for name in hosts for sampler in ("cpu", "memory")], "first": 0}]
    for number in range(len(hosts)):
        for second in (0, 5):
            values = {"cpu.user": (0.5 + number / 2) * second, "cpu.online": 2.0}
            lines.append({"t": now - 6 + second, "i": 2 * number, "values": values})
        lines.append({"t": now - 1, "i": 2 * number + 1, "values": {"memory.total": 2.0**30, "memory.available": 2.0**29}})
    (running / "trials/0099.partial/spool.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = read_live(running)
    write_live(running, state.model_copy(update={"trial": state.trial.model_copy(update={"hosts": tuple(hosts)})}))
    text = client.get(f"/runs/{FIRST}/live").text
    assert "CPU in use on all hosts" in text and "1.50 cores" in text and "1 GB of 2 GB" in text
    assert "2 hosts now" in text and ">db2<" in text and "0.50 of 2 cores" in text and "512 MB of 1 GB" in text
    assert "on db1, db2." in client.get(f"/runs/{FIRST}").text, "hosts with one name go by those that they have in the cluster"


def test_when_it_has_ended_the_page_is_loaded_anew(client, running, runs):
    change(runs, state="finished")
    assert client.get(f"/runs/{FIRST}/live").headers["hx-refresh"] == "true"


def test_a_report_that_is_being_made_is_waited_for(client, runs):
    now = time.time()
    change(runs, ended=now)
    assert "Generating the report" in client.get(f"/runs/{FIRST}").text
    assert client.get(f"/runs/{FIRST}/live").text == "Generating the report …"
    (runs / FIRST / "report.html").write_text("")
    os.utime(runs / FIRST / "report.html", (now - 10, now - 10))
    assert client.get(f"/runs/{FIRST}/live").headers["hx-refresh"] == "true"
    (runs / FIRST / "report.html").unlink()
    change(runs, ended=now - 100)  # it will not come any more
    assert "Generating the report" not in client.get(f"/runs/{FIRST}").text


FILES = ["run.json", "report.html", "report.json", "figures/a.svg", "figures/a.png", "tables/a.csv", "trials/0001/trial.json"]


@pytest.mark.parametrize("path", FILES)
def test_files_are_served_in_a_sandbox(client, runs, path):
    file = runs / FIRST / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(file.read_text() if file.exists() else "<script>alert(1)</script>")
    answer = client.get(f"/runs/{FIRST}/files/{path}")
    policy = answer.headers["content-security-policy"].split("; ")
    assert answer.status_code == 200 and {"default-src 'none'", "form-action 'none'", "frame-ancestors 'none'"} < set(policy)
    assert policy[0] == "sandbox allow-same-origin", "links keep the session; no scripts, forms, windows or downloads"
    assert "script" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "lock",
        "../x",
        "%2e%2e/x",
        "figures/..%2frun.json",
        "/etc/passwd",
        "trials/0001.partial/trial.json",
        "inputs/a",
        "figures/a.svg%00",
        "report.html/",
        "trials/0001/drivers/x",
        "figures/sub/a.svg",
    ],
)
def test_other_files_are_not(client, runs, path):
    (runs / FIRST / "inputs").mkdir()
    (runs / FIRST / "inputs" / "a").write_text("secret")
    (runs / "x").write_text("secret")
    answer = client.get(f"/runs/{FIRST}/files/{path}")
    assert answer.status_code == 404 and "secret" not in answer.text


def test_links_lead_nowhere(client, runs, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (runs / FIRST / "report.html").symlink_to(tmp_path / "secret")
    (runs / FIRST / "figures").symlink_to(tmp_path)
    (tmp_path / "a.svg").write_text("secret")
    for path in ("report.html", "figures/a.svg"):
        assert client.get(f"/runs/{FIRST}/files/{path}").status_code == 404
    assert "a.svg" not in client.get(f"/runs/{FIRST}").text


def test_figures_carry_their_sentence(client, runs):
    (runs / FIRST / "figures").mkdir()
    text = '<text font-size="15.5px" font-weight="600">Linear up to 12</text><text font-weight="600">databases &lt;b&gt;</text>'
    svg = f"<svg><g>{text}</g></svg>"
    (runs / FIRST / "figures" / "efficiency.svg").write_text(svg)
    assert 'alt="Linear up to 12 databases' in client.get(f"/runs/{FIRST}").text
