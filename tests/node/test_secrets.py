import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.node import secrets
from pgherd.node.secrets import keep, kept, redact, redact_arguments, take_variables


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch):
    monkeypatch.setattr(secrets, "_kept", {})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:s3cret@h/d", "postgresql://u:***@h/d"),
        ("host=h password='s3 cret' dbname=d", "host=h password=*** dbname=d"),
        ("PGPASSWORD=s3cret", "PGPASSWORD=***"),
        ("GITHUB_TOKEN=s3cret x=1", "GITHUB_TOKEN=*** x=1"),
        ("--api-key=s3cret", "--api-key=***"),
        ("client_secret = 's3\\'cret' x", "client_secret = *** x"),
        ("{'MY_SECRET': 's3cret', 'x': 1}", "{'MY_SECRET': ***, 'x': 1}"),
        ('{"passphrase": "s3 cret"}', '{"passphrase": ***}'),
        ("MY_PASS=s3cret x", "MY_PASS=*** x"),
        ("db.Pwd = s3cret", "db.Pwd = ***"),
        ("{'AWS_CREDENTIALS': 's3cret'}", "{'AWS_CREDENTIALS': ***}"),
        ("PGPASSFILE=/home/u/s3cret", "PGPASSFILE=***"),
        ("trials=5 --repeats=7", "trials=5 --repeats=7"),
    ],
)
def test_secrets_in_texts(text, shown):
    assert redact(text) == shown


@pytest.mark.parametrize("text", ["key" * 100_000, "a" * 300_000, "-" * 300_000])
def test_a_long_text_takes_little_time(text):
    began = time.monotonic()
    assert redact(text) == text
    assert time.monotonic() - began < 5


def test_a_kept_secret_is_found_anywhere():
    keep("host=h", "hunter2222")
    keep("env:DEBUG", "1")
    assert kept("host=h") == "hunter2222" and redact("line 1: failed with xhunter2222y") == "line 1: failed with x***y"


def test_words_of_a_command_line():
    given_ = [
        "exec",
        "--env",
        "A=s3cret",
        "--env",
        "B",
        "--env=C=s3cret x",
        "--",
        "tool",
        "--token",
        "s3cret",
        "--db-pass",
        "s3cret",
        "MY_PASS=s3cret",
        "--server=postgres://u:s3cret@h/d",
    ]
    shown = [
        "exec",
        "--env",
        "A=***",
        "--env",
        "B",
        "--env=C=***",
        "--",
        "tool",
        "--token",
        "***",
        "--db-pass",
        "***",
        "MY_PASS=***",
        "--server=postgres://u:***@h/d",
    ]
    assert redact_arguments(given_) == shown


@given(st.text(min_size=1, alphabet=st.characters(exclude_characters="\0")).filter(lambda text: text != "***"))
def test_no_value_of_env_is_shown(value):
    assert redact_arguments(["--env", f"A={value}", f"--env=B={value}"]) == ["--env", "A=***", "--env=B=***"]


def test_variables_have_their_value_here_or_in_the_environment():
    assert take_variables(["A=b=c", "EMPTY=", "TOKEN", "SEEN=***"], {"TOKEN": "t", "SEEN": "s"}) == ("A", "EMPTY", "TOKEN", "SEEN")
    assert secrets.variables() == {"A": "b=c", "EMPTY": "", "TOKEN": "t", "SEEN": "s"} and secrets.variable("A") == "b=c"
    keep("host=h", "p")
    secrets.keep_variables({"X": "y"})
    assert secrets.variables() == {"X": "y"} and kept("host=h") == "p"
    with pytest.raises(UsageError, match="not recorded; set A in the environment"):
        secrets.variable("A")


@pytest.mark.parametrize(("word", "message"), [("NONE", "no variable NONE in the environment"), ("A=x\0", "NUL")])
def test_variables_that_cannot_be_taken(word, message):
    with pytest.raises(UsageError, match=message):
        take_variables([word], {})
