from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import time

import click
import pytest

from pgherd import __version__
from pgherd.cli import main as entry
from pgherd.cli.main import VERBS, cli, run, verbs
from pgherd.cli.output import json_option, print_document
from pgherd.model.errors import CapabilityError, RunDirectoryError, TrialError, UsageError
from pgherd.study.study import studies

ALL_VERBS = [verb for lines in verbs().values() for verb in lines]
WITH_A_MODULE = [verb for lines in VERBS.values() for verb in lines]


@pytest.fixture
def verb(monkeypatch):
    """Puts a verb named ``fit`` in the place of the real one: its body is the function given."""

    def put(body):
        @click.command(name="fit")
        @click.option("--clients", type=int)
        @json_option
        def command(clients, as_json):
            return body()

        module = type(sys)("pgherd.cli.fit")
        module.command = command
        monkeypatch.setitem(sys.modules, "pgherd.cli.fit", module)

    return put


def failing(error):
    def body():
        raise error

    return body


@pytest.mark.parametrize("name", WITH_A_MODULE)
def test_every_verb_that_is_no_study_has_its_module(name):
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, click.Command)
    assert command.name == name


def test_an_interrupt_while_modules_are_imported_is_quiet(tmp_path):
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-m", "pgherd", "--help"], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_importing_leaves_the_callers_interrupt_alone():
    message = "import signal, pgherd.cli.main; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", message], capture_output=True, text=True).stdout == "True\n"


def test_help_lists_every_verb(capsys):
    assert run(["--help"]) == 0
    output = capsys.readouterr()
    assert all(f"  {verb} " in output.out for verb in ALL_VERBS)
    assert not output.err


@pytest.mark.parametrize("name", ALL_VERBS)
def test_every_verb_explains_itself(name, capsys):
    assert run([name, "--help"]) == 0
    assert f"Usage: pgherd {name}" in capsys.readouterr().out


def test_help_imports_nothing_dear():
    code = """if True:
        import sys, contextlib, io
        from pgherd.cli.main import run
        with contextlib.redirect_stdout(io.StringIO()):
            assert run(["--help"]) == 0
        print(*sorted({name.partition(".")[0] for name in sys.modules}))
        print(*sorted(name for name in sys.modules if name.startswith("pgherd")))
    """
    tops, ours = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    dear = {"altair", "duckdb", "jinja2", "numpy", "psutil", "psycopg", "pydantic", "rich", "scipy", "vl_convert", "yaml", "json"}
    assert not dear & set(tops.split())
    packages = {study.package for study in studies().values()}
    general = {"pgherd", "pgherd.cli", "pgherd.cli.main", "pgherd.model", "pgherd.model.errors", "pgherd.model.text"}
    definitions = {"pgherd.study", "pgherd.study.study", "pgherd.study.wait_event_columns", "pgherd.studies", *packages}
    assert set(ours.split()) == general | definitions | {f"{package}.study" for package in packages}


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"pgherd {__version__}\n"


def test_nothing_at_all_shows_the_help_on_stderr(capsys):
    assert run([]) == 2
    output = capsys.readouterr()
    assert "Usage:" in output.err and not output.out


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["densty"], ["'densty'", "'density'", "pgherd --help"]),
        (["xyzzy"], ["'xyzzy'", "pgherd --help"]),
        (["e01.yaml"], ["'run e01.yaml'"]),
        (["--verison"], ["--version"]),
        (["fit", "--client", "3"], ["--clients", "pgherd fit --help"]),
        (["fit", "--clients", "many"], ["many", "--clients"]),
        (["fit", "extra"], ["extra"]),
    ],
)
def test_bad_usage_is_one_message(arguments, text, verb, capsys):
    verb(lambda: None)
    assert run(arguments) == 2
    output = capsys.readouterr()
    assert not output.out
    assert output.err.startswith("pgherd: ") and len(output.err.splitlines()) == 1
    assert all(word in output.err for word in text), output.err


@pytest.mark.parametrize("returned, code", [(None, 0), (0, 0), (1, 1), (3, 3)])
def test_verb_returns_its_exit_code(returned, code, verb):
    verb(lambda: returned)
    assert run(["fit"]) == code


@pytest.mark.parametrize(
    "error, code, message",
    [
        (UsageError("wrong"), 2, "wrong"),
        (RunDirectoryError("foreign"), 2, "foreign"),
        (CapabilityError("cannot"), 3, "cannot"),
        (TrialError("died"), 1, "died"),
        (click.FileError("a.yaml", "gone"), 2, "Could not open file 'a.yaml': gone"),
        (click.Abort(), 130, "interrupted"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y"), 1, "No space left on device: /x/y. Free some space and try again."),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            3,
            "Permission denied: /x. Run as a user with this permission, or choose another path.",
        ),
        (OSError("odd"), 1, "odd. PGHERD_DEBUG=1 prints the traceback."),
    ],
)
def test_errors_are_one_message_and_an_exit_code(error, code, message, verb, capsys):
    verb(failing(error))
    assert run(["fit"]) == code
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"pgherd: {message}\n")

    assert run(["fit", "--json"]) == code
    output = capsys.readouterr()
    assert output.err == f"pgherd: {message}\n"
    assert json.loads(output.out) == {"schema": "pgherd/error/2", "error": message, "exit_code": code}


def test_debug_shows_the_traceback(verb, capsys, monkeypatch):
    monkeypatch.setenv("PGHERD_DEBUG", "1")
    verb(failing(UsageError("wrong")))
    assert run(["fit"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_defect_keeps_its_traceback_in_a_file(verb, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verb(failing(KeyError("clients")))
    assert run(["fit"]) == 1
    errors = capsys.readouterr().err
    (retained,) = tmp_path.iterdir()
    assert "internal error" in errors and "KeyError: 'clients'" in errors and str(retained) in errors and len(errors.splitlines()) == 1
    assert "Traceback" in retained.read_text() and __version__ in retained.read_text()


def test_the_file_of_a_defect_has_no_secrets(verb, capsys, monkeypatch, tmp_path):
    """The user is asked to send it."""
    arguments = ["fit", "--dsn=postgresql://u:s3cret-1@h/d", "--env", "A=s3cret-2", "--metrics-token", "s3cret-3"]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["pgherd", *arguments])
    verb(failing(KeyError("postgresql://u:s3cret-1@h/d API_KEY=s3cret-4")))
    assert run(["fit"]) == 1
    (retained,) = tmp_path.iterdir()
    assert "s3cret" not in retained.read_text() + capsys.readouterr().err and "***@h/d" in retained.read_text()
    assert retained.stat().st_mode & 0o777 == 0o600


def test_no_other_user_may_write_what_a_verb_makes(tmp_path):
    code = "import sys; from pgherd.cli import main; main.run = lambda words: open(sys.argv[1], 'w').close() or 0; main.main()"
    for mask, mode in (("000", 0o644), ("077", 0o600)):
        masked = ["sh", "-c", 'umask "$1"; shift; exec "$@"', "sh", mask]
        subprocess.run([*masked, sys.executable, "-c", code, str(tmp_path / mask)], check=False)
        assert (tmp_path / mask).stat().st_mode & 0o777 == mode


def test_defect_where_nothing_can_be_written(verb, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    verb(failing(KeyError("clients")))
    assert run(["fit"]) == 1
    assert "PGHERD_DEBUG=1" in capsys.readouterr().err


def test_json_that_is_not_ours_is_left_alone(capsys):
    assert run(["xyzzy", "--", "--json"]) == 2
    assert not capsys.readouterr().out


def test_bad_usage_after_json_still_gives_the_document(verb, capsys):
    verb(lambda: None)
    assert run(["fit", "--json", "--clients", "many"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_stdout_is_given_back_after_json(verb):
    before = sys.stdout
    verb(lambda: print_document({}))
    assert run(["fit", "--json"]) == 0
    assert sys.stdout is before


def test_completion_offers_verbs_without_importing_them(monkeypatch):
    studies()  # the small definitions of studies are read for their names
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
    offered = cli.shell_complete(click.Context(cli), "re")
    assert [item.value for item in offered] == ["report", "resume"]


# ---- as a process of its own


def start(*arguments: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-m", "pgherd", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture
def closed_pipe():
    """Descriptor of a pipe without a reader."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize("arguments", [("--help",), ("list", "--runs-dir", ".")])
def test_reader_that_went_away_is_no_error(closed_pipe, tmp_path, arguments):
    process = start(*arguments, stdout=closed_pipe, cwd=tmp_path)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == entry.BROKEN_PIPE


def test_messages_that_cannot_be_printed_leave_the_exit_code(closed_pipe):
    command = [sys.executable, "-I", "-m", "pgherd", "frobnicate"]
    assert subprocess.run(command, stderr=closed_pipe, timeout=60).returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_device_is_one_message():
    with open("/dev/full", "w") as full:
        process = start("--help", stdout=full)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert err.startswith("pgherd: No space left on device") and len(err.splitlines()) == 1


def test_interrupt_from_the_keyboard():
    code = """if True:
        import sys, time, types, click
        from pgherd.cli.main import main
        command = click.Command("fit", callback=lambda: (print("ready", flush=True), time.sleep(60)))
        module = sys.modules["pgherd.cli.fit"] = types.ModuleType("fit")
        module.command = command
        sys.argv[1:] = ["fit"]
        main()
    """
    process = subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "pgherd: interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("uid", [0, 1000])
def test_what_root_creates_is_not_for_others_to_write(monkeypatch, uid):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(sys, "argv", ["pgherd", "--version"])
    before = os.umask(0o002)
    try:
        with pytest.raises(SystemExit):
            entry.main()
        assert os.umask(0) == 0o022
    finally:
        os.umask(before)


def test_a_study_that_another_verb_starts_has_no_verb_of_its_own(capsys):
    assert "place-verify" in studies() and "place-verify" not in {verb for lines in verbs().values() for verb in lines}
    assert run(["place-verify"]) == 2
    assert "there is no command 'place-verify'" in capsys.readouterr().err
