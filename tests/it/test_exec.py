"""`pgherd exec` with real commands, watched from another process, and killed in the middle."""

from __future__ import annotations

import json
import os

import pytest

from pgherd.store.run_directory import RunDirectory

SHORT = ("--no-report", "--json")


def test_a_command_that_ends_by_itself(elsewhere):
    ended = elsewhere(
        "exec", "--repeats", "3", "--extract", r"n=(\d+)", "--unit", "n=apples", *SHORT, "--", "sh", "-c", "echo n=42; exec sleep 0.7"
    )  # fmt: skip
    assert ended.code in (0, 1), ended  # 1: tainted throughout, as on a busy machine
    document = json.loads(ended.out)
    duration = document["findings"]["duration"]
    assert duration["unit"] == "s" and 0.7 <= duration["value"] < 10
    assert document["findings"]["n"]["value"] == 42 and document["findings"]["n"]["unit"] == "apples"
    assert document["findings"]["host_cpu"]["value"] > 0 and document["findings"]["cpu_seconds"]["value"] < 0.5
    assert all(file.read_text() == "n=42\n" for file in elsewhere.run.glob("trials/*/drivers/00-command/local/stdout"))
    script = elsewhere("show", "last", "1", "--repro-script")
    assert script.code == 0 and "sh -c 'echo n=42; exec sleep 0.7'" in script.out
    shown = elsewhere("show", "last", "1")
    assert "n 42" in shown.out and "exit code 0" in shown.out
    elsewhere.nothing_left()
    elsewhere.ended_well(ended)


def test_a_command_that_fails_taints_its_trial(elsewhere):
    ended = elsewhere("exec", "--repeats", "1", *SHORT, "--", "sh", "-c", "echo no luck >&2; exit 3")
    document = json.loads(ended.out)
    assert ended.code == 1 and document["grade"] == "C"
    verdicts = {verdict["name"]: verdict for verdict in document["trials"][0]["checks"]}
    assert verdicts["exit-code"]["result"] == "fail" and verdicts["exit-code"]["observed"] == "exit code 3 on local"
    assert next(elsewhere.run.glob("trials/0001/drivers/00-command/local/stderr")).read_text() == "no luck\n"


def test_what_it_leaves_running_is_ended(elsewhere):
    ended = elsewhere("exec", "--repeats", "1", *SHORT, "--", "sh", "-c", "sleep 69 & echo begun")
    assert ended.code in (0, 1) and json.loads(ended.out)["findings"]["duration"]["value"] < 20, ended
    elsewhere.nothing_left()


def test_one_that_takes_too_long_is_ended_and_said(elsewhere):
    ended = elsewhere("exec", "--repeats", "1", "--timeout", "0.5s", *SHORT, "--", "sleep", "67")
    assert ended.code == 1 and "had not ended after 0.5 s" in ended.err
    elsewhere.nothing_left()


def test_one_that_runs_on_is_ended_with_what_it_has_started(elsewhere):
    ended = elsewhere("exec", "--repeats", "1", "--duration", "1s", *SHORT, "--", "sh", "-c", "sleep 68 & echo begun; wait")
    document = json.loads(ended.out)
    assert ended.code in (0, 1) and "ran for 1 s per trial" in document["answer"], ended
    assert {verdict["name"]: verdict["result"] for verdict in document["trials"][0]["checks"]}["exit-code"] == "pass"
    elsewhere.nothing_left()


def test_one_that_should_run_on_and_ends_fails(elsewhere):
    ended = elsewhere("exec", "--repeats", "1", "--duration", "5s", *SHORT, "--", "sh", "-c", "echo gone >&2")
    assert ended.code == 1 and "ended early with exit code 0: gone" in ended.err


def test_it_can_be_watched_killed_and_gone_on_with(elsewhere):
    mark = elsewhere.root / "short"
    script = f"echo begun; [ -e {mark} ] && exec sleep 2; sleep 92 & sleep 91"
    process = elsewhere.start("exec", "--repeats", "2", "--no-report", "--", "sh", "-c", script)
    elsewhere.wait_until(lambda: list(elsewhere.runs.glob("*/trials/0001.partial/spool.jsonl")))

    def seen():
        shown = json.loads(elsewhere("watch", "--json").out)
        return shown if shown["trial"] and shown["trial"]["phase"] and shown["host"]["cpu"] is not None else None

    shown = elsewhere.wait_until(seen)
    assert (shown["state"], shown["trial"]["number"], shown["trials_remaining"], shown["trials_done"]) == ("running", 1, 2, 0)
    assert shown["trial"]["drivers"] == {"command": 1} and shown["trial"]["ends_with"] == "drivers" and shown["seconds_remaining"] is None
    assert shown["throughput"]["value"] is None and shown["host"]["memory"] > 0
    process.kill()
    elsewhere.end(process)
    elsewhere.wait_until(lambda: not elsewhere.programs("sleep"))
    reported = elsewhere("watch", "last")
    assert reported.code == 1 and "was killed" in reported.out and "pgherd resume" in reported.out
    assert elsewhere("clean").code == 0
    elsewhere.nothing_left()
    mark.touch()
    resumed = elsewhere.start("resume", "last", "--no-report")
    elsewhere.wait_until(lambda: RunDirectory(elsewhere.run).alive() or resumed.poll() is not None)
    watched = elsewhere("watch", "last")
    assert elsewhere.end(resumed).code in (0, 1)
    assert watched.code in (0, 1) and "takes 2" in watched.out, watched
    assert not list(elsewhere.run.glob("live.json*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could follow a link to what the command cannot read or change")
@pytest.mark.parametrize("link", ["ended.json", "secret"])
def test_links_of_a_command_lead_root_nowhere(elsewhere, link):
    victim = elsewhere.root / "victim"
    victim.write_text("kept secret")
    victim.chmod(0o600)
    script = f'ln -s {victim} "$(dirname "$(readlink /proc/$$/fd/1)")/{link}"'
    ended = elsewhere("exec", "--repeats", "1", *SHORT, "--", "sh", "-c", script)
    assert f"{link} is a link" in ended.err + ended.out, ended
    assert victim.read_text() == "kept secret" and victim.stat().st_uid == 0
    assert not list(elsewhere.run.glob(f"trials/*/drivers/*/*/{link}*"))
    elsewhere.nothing_left()


def test_values_of_variables_are_nowhere(elsewhere, monkeypatch):
    """The command prints all command lines of the host into its output, which is part of the run."""
    monkeypatch.setenv("VALUE_A", "s3cret-of-a-14")
    look = 'test "${#VALUE_A}" = 14 && cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " "; test "${#VALUE_A}" = 14'
    ended = elsewhere("exec", "--repeats", "1", "--env", "VALUE_A", "--", "sh", "-c", look)
    assert ended.code in (0, 1), ended
    files = [file for file in elsewhere.run.rglob("*") if file.is_file()]
    output = next(file for file in files if file.name == "stdout").read_text()
    assert "-m pgherd exec" in output and any(file.name == "report.html" for file in files)
    assert not [file for file in files if b"s3cret-of-a-14" in file.read_bytes()]
    assert "s3cret-of-a-14" not in ended.out + ended.err
    result = json.loads((elsewhere.run / "trials/0001/trial.json").read_text())
    assert result["phases"][0]["targets"][0]["values"]["exit_code"] == 0
    assert elsewhere.run.stat().st_mode & 0o777 == 0o700
    assert not [file for file in files if file.stat().st_mode & 0o077 and file.name != "lock"]
