from __future__ import annotations

import os

import pytest

from pgherd.runtimes.vm import agent_processes


def asked(*argv: bytes, environment=(), directory=b"", user=b"", death=b"KILL", output=b"", at=0):
    return [list(argv), list(environment), directory, [], [], user, death, b"", output, output, at]


def ended(child: agent_processes.Child) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    os.close(child.handle)
    return code


def test_a_program_is_started_with_what_was_asked_and_nothing_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("MINE", "1")
    output = tmp_path / "out"
    words = asked(
        b"sh", b"-c", b"pwd; echo $GIVEN $MINE", environment=[b"GIVEN=a=b"], directory=os.fsencode(tmp_path), output=os.fsencode(output)
    )
    child = agent_processes.start(7, words)
    assert (child.serial, ended(child)) == (7, 0)
    assert output.read_text().split() == [str(tmp_path), "a=b"]


def test_what_it_says_is_caught_in_the_files_that_are_given():
    out, errors = os.memfd_create("out"), os.memfd_create("errors")
    child = agent_processes.start(1, asked(b"sh", b"-c", b"echo said; echo wrong >&2; exit 3"), (out, errors))
    assert ended(child) == 3
    assert (os.pread(out, 100, 0), os.pread(errors, 100, 0)) == (b"said\n", b"wrong\n")
    agent_processes.close_all((out, errors))


def test_what_cannot_be_started_is_said_before_there_is_a_process(tmp_path, monkeypatch):
    """A program that is not there is, by its exit code."""
    assert ended(agent_processes.start(1, asked(b"no-such-program"))) == 127
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    for wrong, error in (
        ({"user": b"no-such-account"}, KeyError),
        ({"death": b"NOSUCH"}, AttributeError),
        ({"output": os.fsencode(tmp_path / "no/such/file")}, FileNotFoundError),
    ):
        with pytest.raises(error):
            agent_processes.start(1, asked(b"true", **wrong))


def test_a_program_is_found_as_a_shell_finds_it(tmp_path):
    program = tmp_path / "tool"
    program.write_text("")
    program.chmod(0o755)
    path = b"/nonexistent:" + os.fsencode(tmp_path)
    assert agent_processes._found(b"tool", path) == os.fsencode(program)
    assert agent_processes._found(b"./tool", path) == b"./tool"
    assert agent_processes._found(b"missing", path) == b"missing"
