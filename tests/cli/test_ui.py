"""``pgherd ui`` as its user meets it: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

from pgherd.cli.main import run


@pytest.fixture
def start(runs, tmp_path):
    """Start the verb in a process of its own; ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pgherd", "ui", "--runs-dir", str(runs), "--port", "0", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": "/usr/bin:/bin",
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                "XDG_STATE_HOME": str(tmp_path / "state"),
                "COLUMNS": "200",
            },
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def document_of(process: subprocess.Popen[str]) -> dict:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            break
    return json.loads(text)


def test_one_document_with_the_address(start, runs):
    process = start("--json")
    document = document_of(process)
    assert document["schema"] == "pgherd/ui/2" and document["runs"] == str(runs)
    assert document["sign_in_url"] == f"{document['address']}sign-in?token={document['token']}"
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(document["sign_in_url"], timeout=20) as answer:
        assert answer.status == 200 and b"<h1>Runs</h1>" in answer.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == "" and err.strip() == "pgherd: interrupted"


def test_the_address_for_a_reader(start):
    process = start()
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert "/sign-in?token=" in lines[0] and lines[0].startswith("Runs in ")
    assert "not printed again" in lines[1] and lines[2] == "Ctrl-C ends the page.\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == "" and err.strip() == "pgherd: interrupted"


def test_an_address_that_is_not_here(runs, capsys):
    assert run(["ui", "--runs-dir", str(runs), "--listen", "192.0.2.7", "--port", "0"]) == 2
    assert "no address of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--port", "x"], ["--listen"], ["extra"]])
def test_bad_usage(arguments, capsys):
    assert run(["ui", *arguments]) == 2
