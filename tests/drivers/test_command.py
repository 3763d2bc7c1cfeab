import json
import signal
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.drivers.command import DRIVER, ENDED, CommandExit, command_of, environment, patterns_of, read_exit, read_values
from pgherd.drivers.driver import Endpoint, MeasuredWindow, driver_named
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.node import secrets

ENDPOINT = Endpoint("local", "", "", 0, "", "", "/out")
WINDOW = MeasuredWindow(start=100.0, end=110.0, stop=110.0)


def load(*words, **options):
    return Load(driver="command", options={"argv": json.dumps(words or ["true"])} | options)


def test_it_is_found_by_name_and_runs_outside_of_containers():
    assert driver_named("command") is DRIVER
    assert load().client_placement == "outside" and load().scripts == ()


def test_words_reach_the_command_as_they_are():
    words = ["dd", "of=/tmp/a b", "$HOME", "; rm -rf /", ""]
    argv = DRIVER.argv(load(*words), ENDPOINT, 69.2)
    ended = ["timeout", "--kill-after=10", "70"]
    assert argv == ["env", *ended, "setpriv", "--pdeathsig", "TERM", *ended, *words]


def test_directory_and_names_of_variables_stand_before_it():
    argv = DRIVER.argv(load("make", **{"cwd": "/src dir", "env:CC": "***", "env:EMPTY": "***"}), ENDPOINT, 1)
    assert argv[:4] == ["env", "--chdir=/src dir", "sh", "-c"] and argv[5:7] == ["sh", "timeout"] and argv[-1] == "make"


def test_values_of_variables_are_in_the_environment_of_the_command_only(monkeypatch):
    monkeypatch.setattr(secrets, "_kept", {})
    values = {"SECRET_A": "s3cret' $(id) \n", "EMPTY": "", "PATH": "/usr/bin:/bin:/s3cret", "LD_PRELOAD": ""}
    secrets.keep_variables(values)
    script = 'tr "\\0" " " </proc/$PPID/cmdline; printf "%s|" "$SECRET_A" "${EMPTY-unset}" "$PATH"; env'
    one = load("sh", "-c", script, **{f"env:{name}": "***" for name in values})
    argv, passed = DRIVER.argv(one, ENDPOINT, 9), environment(one)
    assert "s3cret" not in " ".join(argv) and not set(passed) & {"PATH", "LD_PRELOAD"}, "the programs before the command do not see them"
    done = subprocess.run(argv, env={"PATH": "/usr/bin:/bin", "TZ": "UTC", **passed}, capture_output=True, text=True)
    command_line, _, rest = done.stdout.partition("timeout --kill-after")
    assert f"{values['SECRET_A']}||/usr/bin:/bin:/s3cret|" in rest and "PGHERD_ENV" not in rest.partition("|")[2], done
    assert "s3cret" not in command_line + rest.partition("printf")[0]


@pytest.mark.parametrize("name", ["a-b", "1", "", "A;touch x", "A\n"])
def test_names_of_variables_are_names(name):
    with pytest.raises(UsageError, match="not a valid name"):
        DRIVER.argv(load("make", **{f"env:{name}": "***"}), ENDPOINT, 1)


@pytest.mark.parametrize("argv", ["", "[]", "{}", '["a", 1]', '[""]', "not json"])
def test_no_command_is_said(argv):
    with pytest.raises(UsageError, match="needs argv"):
        command_of(Load(driver="command", options={"argv": argv}))


def test_unknown_options_are_said():
    with pytest.raises(UsageError, match="no option 'shell'"):
        DRIVER.argv(load(shell="1"), ENDPOINT, 1)


def test_one_that_ended_by_itself_has_a_duration():
    files = {"stdout": "", "stderr": "", ENDED: CommandExit(0, 107.5).written().decode()}
    assert DRIVER.span(files, 100.0, 120.0).last == 107.5
    found = DRIVER.result(load(), files, 100.0, MeasuredWindow(100.0, 107.5, 107.5), "local")
    assert found.values == {"duration_seconds": 7.5, "exit_code": 0.0}
    assert found.transactions == 1 and found.throughput == pytest.approx(1 / 7.5) and (found.first, found.last) == (100.0, 107.5)


def test_one_that_failed_has_come_to_no_end():
    files = {ENDED: CommandExit(-signal.SIGSEGV, 101.0).written().decode()}
    found = DRIVER.result(load(), files, 100.0, WINDOW, "local")
    assert found.values["exit_code"] == -11 and found.transactions == 0


def test_one_that_was_told_to_end_ran_until_then():
    found = DRIVER.result(load(), {"stdout": "x"}, 95.0, WINDOW, "local")
    assert (found.first, found.last, found.values, found.transactions) == (95.0, 110.0, {}, 0)


def test_an_ending_that_is_none_is_an_error():
    assert read_exit({}) is None
    with pytest.raises(ValueError, match="no exit code and instant"):
        read_exit({ENDED: '{"code": 1}'})


@pytest.mark.parametrize(
    ("pattern", "out", "err", "value"),
    [
        (r"rate=([\d.]+)", "rate=1.5\nrate=2.5\n", "", 2.5),
        (r"\d+ ops", "", "12 ops", None),
        (r"\d+(?= ops)", "", "12 ops", 12.0),
        (r"^total ([\d,]+)$", "a total 1\ntotal 1,234,567\n", "", 1234567.0),
        (r"x=(\d+)", "x=1", "x=2", 1.0),
        (r"x=(\d+)", "nothing", "x=2", 2.0),
        (r"x=(\d+)?", "x=", "", None),
        (r"(-?\d+\.?\d*e[+-]\d+)", "lag -1.5e-03 s", "", -0.0015),
        (r"x=(\d+)", "", "", None),
    ],
)
def test_values_are_the_last_match(pattern, out, err, value):
    assert read_values({"v": pattern}, {"stdout": out, "stderr": err}) == {"v": value}


def test_values_found_are_in_the_result():
    one = load(**{"value:rate": r"rate (\d+)", "value:gone": r"gone (\d+)"})
    assert patterns_of(one) == {"rate": r"rate (\d+)", "gone": r"gone (\d+)"}
    assert DRIVER.result(one, {"stdout": "rate 7"}, 95.0, WINDOW, "local").values == {"value:rate": 7.0}


@given(st.integers(-255, 255), st.floats(0, 4e9))
def test_endings_come_back(code, at):
    assert read_exit({ENDED: CommandExit(code, at).written().decode()}) == CommandExit(code, at)


@given(st.text(max_size=200))
def test_no_output_breaks_it(text):
    read_values({"v": r"([\d.,]+)"}, {"stdout": text, "stderr": text})
