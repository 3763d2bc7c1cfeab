import os

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.prepare.requests import request
from pgherd.studies.exec.options import ExecRequest, ExtractedValue
from pgherd.studies.exec.prepare import prepare

pytestmark = pytest.mark.usefixtures("own_directories")


def prepared(*command, **requested):
    return prepare(LocalNode(), ExecRequest(command=command or ("sleep", "1"), **{"cwd": "/", **requested}), True)


def test_a_plain_command_is_completed():
    prepared_study = prepared("sleep", "1")
    options = prepared_study.options
    assert options.command == ("sleep", "1") and options.duration is None and options.timeout == 600 and options.repeats == 5
    assert options.cwd == "/" and not options.as_root and options.hosts == ("local",)
    assert (
        prepared_study.installation is None and prepared_study.disk == 0 and "all changes by the command" in prepared_study.host_changes[0]
    )
    assert any("Working directory /" in text for text in prepared_study.defaults_chosen) and any(
        "sleep 1" in text for text in prepared_study.defaults_chosen
    )


def test_everything_that_can_be_said():
    options = prepared(
        "env",
        extract=("rate=rate=([0-9.]+) MB/s", "n=[0-9]+"),
        unit=("rate=MB/s",),
        env=("A=b=c", "EMPTY="),
        duration="30s",
        warmup="5s",
        repeats=7,
        time_budget="10m",
    ).options
    assert options.extract == (
        ExtractedValue(name="rate", pattern="rate=([0-9.]+) MB/s", unit="MB/s"),
        ExtractedValue(name="n", pattern="[0-9]+"),
    )
    assert options.env == {"A": "***", "EMPTY": "***"}
    assert (options.duration, options.warmup, options.repeats, options.time_budget) == (30, 5, 7, 600)


@pytest.mark.parametrize(
    ("command", "requested", "message"),
    [
        ((), {"command": ()}, "there is no command; write it after --"),
        (("no-such-program-anywhere",), {}, "cannot run a program 'no-such-program-anywhere'"),
        (("./no-such",), {}, r"cannot run a program './no-such'"),
        (("if",), {}, "builtins and aliases of a shell are not"),
        (("/etc",), {}, "cannot run a program '/etc'"),
        (("sleep", "a\0b"), {}, "NUL character"),
        (("sleep",), {"cwd": "/no/such/directory"}, "cannot enter /no/such/directory"),
        (("sleep",), {"extract": ("rate",)}, "--extract rate: write NAME=REGEX"),
        (("sleep",), {"extract": ("rate=",)}, "--extract rate=: write NAME=REGEX"),
        (("sleep",), {"extract": ("rate=(",)}, r"rate=\(: not a regular expression"),
        (("sleep",), {"extract": ("rate=(a)(b)",)}, "it has 2 groups"),
        (("sleep",), {"extract": ("a b=x",)}, "letters, digits and _"),
        (("sleep",), {"extract": ("a=x", "a=y")}, "given twice"),
        (("sleep",), {"unit": ("rate=MB/s",)}, "add --extract rate"),
        (("sleep",), {"env": ("a-b=1",)}, "not a valid name of a variable"),
        (("sleep",), {"warmup": "1s"}, "--warmup needs --duration"),
        (("sleep",), {"duration": "3s", "timeout": "9s"}, "give only one of them"),
        (("sleep",), {"duration": "0"}, "a time above zero"),
        (("sleep",), {"duration": "soon"}, "'duration': 'soon' is not a duration"),
        (("sleep",), {"host_cores": 10000}, "more than this host has"),
        (("sleep",), {"threshold": ("x=1",)}, "no threshold 'x'"),
        (("sleep",), {"run_as": "root"}, "use --as-root"),
        (("sleep",), {"run_as": "no-such-account"}, "no user 'no-such-account'"),
    ],
)
def test_what_is_wrong_is_said(command, requested, message):
    with pytest.raises(UsageError, match=message):
        prepare(LocalNode(), request("exec", {"command": command, "cwd": "/", **requested}), True)


def test_a_program_is_looked_for_from_its_directory(tmp_path):
    for path in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and path != path.parent:
            path.chmod(path.stat().st_mode | 0o055)
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match="a program './tool'"):
        prepared("./tool", cwd=str(tmp_path))
    program.chmod(0o755)
    assert prepared("./tool", cwd=str(tmp_path)).options.command == ("./tool",)
    assert prepared("echo", "x").options.command == ("echo", "x"), "a shell's builtin that is a program, too"


def test_without_a_directory_it_is_ours(monkeypatch):
    monkeypatch.chdir("/usr")
    prepared_study = prepare(LocalNode(), ExecRequest(command=("sleep",)), True)
    assert prepared_study.options.cwd == "/usr" and "cannot enter" not in prepared_study.defaults_chosen[0]


def test_a_current_directory_that_the_user_cannot_enter_is_replaced_unless_it_was_given(tmp_path, monkeypatch):
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.chdir(private)
    private.chmod(0o700 if os.geteuid() == 0 else 0o000)  # for root the command's user is another one
    try:
        prepared_study = prepare(LocalNode(), ExecRequest(command=("sleep",)), True)
        assert prepared_study.options.cwd == "/"
        assert prepared_study.defaults_chosen[0].startswith("Working directory /") and prepared_study.defaults_chosen[0].endswith(
            f"cannot enter {private}."
        )
        for request in ({"cwd": str(private)}, {"cwd": "."}, {"command": ("./tool",)}):
            with pytest.raises(UsageError, match=f"cannot enter {private}, the working directory"):
                prepare(LocalNode(), ExecRequest(**{"command": ("sleep",), **request}), True)
    finally:
        private.chmod(0o700)


def test_only_root_runs_a_command_as_root(monkeypatch):
    if os.geteuid() == 0:
        assert prepared(as_root=True).options.as_root
    else:
        with pytest.raises(CapabilityError, match="needs root"):
            prepared(as_root=True)
