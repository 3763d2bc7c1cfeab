import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgherd.model.errors import UsageError
from pgherd.postgres import dsn

PASSWORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=8, max_size=20).filter(lambda text: "***" not in text)


@pytest.mark.parametrize(
    "given_",
    [
        "postgresql://me:s3cret@db.example:5433/app?sslmode=require",
        "postgres://me:s3cret@db.example:5433/app?sslmode=require",
        "postgresql://db.example:5433/app?user=me&password=s3cret&sslmode=require",
        "host=db.example port=5433 user=me password=s3cret dbname=app sslmode=require",
        "host=db.example port=5433 user=me password = 's3cret' dbname=app sslmode=require",
    ],
)
def test_the_password_stays_here_and_the_rest_is_one_form(given_):
    plain = dsn.take(given_)
    assert conninfo_to_dict(plain) == {"host": "db.example", "port": "5433", "user": "me", "dbname": "app", "sslmode": "require"}
    assert dsn.password_of(plain) == "s3cret"
    assert "s3cret" not in dsn.redact(given_) and "db.example" in dsn.redact(given_) and dsn.HIDDEN in dsn.redact(given_)


def test_without_a_password_there_is_none():
    assert dsn.password_of(dsn.take("host=nobody.example user=me")) is None
    hidden = dsn.take("postgresql://other:***@nobody.example/app")
    assert dsn.password_of(hidden) is None, "what a record says instead of a password is none"
    assert dsn.redact("host=nobody.example user=me") == "host=nobody.example user=me"


@pytest.mark.parametrize(
    "given_", ["not a dsn", "host", "postgresql://me:s3cret@h/x?nonsense=1", "hots=x password=s3cret", "password='s3cret"]
)
def test_what_is_no_dsn_is_refused_without_telling_a_password(given_):
    with pytest.raises(UsageError, match="this is not a DSN") as caught:
        dsn.take(given_)
    assert "s3cret" not in str(caught.value)


def test_other_secrets_are_not_taken():
    with pytest.raises(UsageError, match="sslpassword cannot be given in a DSN"):
        dsn.take("host=h sslpassword=s3cret")


@given(PASSWORDS)
def test_a_password_in_a_keyword_dsn_is_found_whatever_it_is(password):
    word = make_conninfo("", host="h.example", password=password)
    assert dsn.password_of(dsn.take(word)) == password
    shown = dsn.redact(f"b:server={word}")
    assert conninfo_to_dict(shown.removeprefix("b:server="))["password"] == dsn.HIDDEN


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--server=postgresql://u:p@h/d", "--server=postgresql://u:***@h/d"),
        ('b:server="host=h password=p dbname=d",vcpus=2', 'b:server="host=h password=*** dbname=d",vcpus=2'),
        ("b:server=postgresql://u:p%40x@h:5432/d,vcpus=2", "b:server=postgresql://u:***@h:5432/d,vcpus=2"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("password_encryption=md5", "password_encryption=md5"),
    ],
)
def test_words_of_a_command_line(word, shown):
    assert dsn.redact(word) == shown
