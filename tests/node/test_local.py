from __future__ import annotations

import os
import socket
import subprocess
import threading

import psycopg
import pytest

from pgherd.node.files import UnsafeFileError
from pgherd.node.local import Connections, LocalNode

# ---- node


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")


def test_files_are_written_whole_and_read_back(tmp_path):
    node = LocalNode()
    file = str(tmp_path / "knob")
    node.write(file, b"12")
    node.write(file, b"3")
    assert node.read(file) == b"3"
    assert node.exists(file) and node.listdir(str(tmp_path)) == ["knob"]


def test_directories_get_the_mode_and_trees_vanish(tmp_path):
    node = LocalNode()
    path = tmp_path / "a" / "b"
    node.make_dir(str(path), mode=0o700)
    assert os.stat(path).st_mode & 0o777 == 0o700
    node.remove_dir(str(path))
    assert not path.exists()
    node.remove_tree(str(tmp_path / "a"))
    node.remove_tree(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_a_missing_file_is_an_os_error():
    with pytest.raises(FileNotFoundError):
        LocalNode().read("/nonexistent")


def test_a_directory_that_is_still_written_to_goes_once_the_writer_has_ended(tmp_path):
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    for number in range(2000):
        (doomed / f"old{number}").touch()
    script = f"i=0; while [ $i -lt 3000 ]; do : > {doomed}/new$i || exit 0; i=$((i+1)); done 2>/dev/null"
    with subprocess.Popen(["sh", "-c", script]) as writer:
        LocalNode().remove_tree(str(doomed))
        writer.wait(30)
    assert not doomed.exists()


@pytest.fixture
def secret(place):
    """A file of root's that others can neither read nor change."""
    file = place / "secret"
    file.write_text("secret")
    file.chmod(0o600)
    return file


@pytest.fixture
def theirs(place):
    """A directory of nobody's in one of root's."""
    directory = place / "theirs"
    LocalNode().make_dir(str(directory), user="nobody")
    return directory


def unchanged(secret):
    return secret.read_text() == "secret" and secret.owner() == "root" and secret.stat().st_mode & 0o777 == 0o600


@as_root
def test_a_file_for_another_user_replaces_the_link_that_this_user_laid(secret, theirs):
    (theirs / "postgresql.conf").symlink_to(secret)
    LocalNode().write(str(theirs / "postgresql.conf"), b"port = 1", user="nobody")
    assert unchanged(secret)
    assert not (theirs / "postgresql.conf").is_symlink() and (theirs / "postgresql.conf").read_text() == "port = 1"
    assert (theirs / "postgresql.conf").owner() == "nobody" and os.listdir(theirs) == ["postgresql.conf"]


@as_root
def test_a_file_for_another_user_leaves_the_file_that_is_linked_hard(secret, theirs):
    os.link(secret, theirs / "postgresql.conf")
    LocalNode().write(str(theirs / "postgresql.conf"), b"port = 1", user="nobody")
    assert unchanged(secret) and (theirs / "postgresql.conf").owner() == "nobody"


def test_a_link_is_never_written_through(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        LocalNode().write(str(tmp_path / "link"), b"x")
    assert (tmp_path / "target").read_text() == "kept"


@as_root
@pytest.mark.parametrize("what", ["soft link", "hard link", "pipe", "endless"])
def test_a_file_that_another_user_exchanged_is_not_read(secret, theirs, what):
    file = theirs / "out"
    if what == "soft link":
        file.symlink_to(secret)
    elif what == "hard link":
        os.link(secret, file)
    elif what == "pipe":
        os.mkfifo(file)
    else:
        with open(file, "wb") as sparse:
            sparse.truncate(2**40)
    with pytest.raises(UnsafeFileError):
        LocalNode().read_untrusted(str(file), 2**20)
    file.unlink()
    file.write_bytes(b"mine")
    assert LocalNode().read_untrusted(str(file)) == b"mine"


@as_root
def test_a_directory_for_another_user_does_not_follow_its_link(place, theirs):
    kept = place / "kept"
    kept.mkdir(mode=0o755)
    (place / "temp").symlink_to(kept)
    with pytest.raises(UnsafeFileError, match="is a link"):
        LocalNode().make_dir(str(place / "temp"), user="nobody")
    with pytest.raises(UnsafeFileError, match="belongs to uid 65534, who could exchange temp for a link"):
        LocalNode().make_dir(str(theirs / "temp"), user="nobody")
    assert kept.owner() == "root" and kept.stat().st_mode & 0o777 == 0o755 and os.listdir(theirs) == []


@as_root
def test_a_directory_of_a_third_user_is_not_given_away(place):
    (place / "a").mkdir()
    os.chown(place / "a", 54321, 54321)
    with pytest.raises(UnsafeFileError, match="belongs to uid 54321; it is not given to nobody"):
        LocalNode().make_dir(str(place / "a"), user="nobody")
    LocalNode().make_dir(str(place / "b"), mode=0o710, user="nobody")
    LocalNode().make_dir(str(place / "b"), mode=0o700, user="nobody")
    assert (place / "b").owner() == "nobody" and (place / "b").stat().st_mode & 0o777 == 0o700


# ---- connections to servers


class Cursor:
    description = ("a column",)

    def fetchall(self):
        return [(1,)]


class Connection:
    """A connection that is lost after a number of statements."""

    def __init__(self, lives: int) -> None:
        self.lives, self.closed = lives, False

    def execute(self, statement, parameters):
        if self.lives == 0:
            self.closed = True
            raise psycopg.OperationalError("the connection was lost")
        self.lives -= 1
        if statement == b"wrong":
            raise psycopg.errors.SyntaxError("no such statement")
        if statement == b"slow":
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return Cursor()

    def close(self):
        self.closed = True


@pytest.fixture
def made(monkeypatch):
    """The opened connections, by conninfo; each is lost after two statements."""
    found: list[tuple[str, Connection]] = []

    def connect(conninfo, **options):
        assert options["autocommit"]
        found.append((conninfo, Connection(2)))
        return found[-1][1]

    monkeypatch.setattr(psycopg, "connect", connect)
    return found


def test_a_connection_is_kept_and_made_anew_once_it_is_lost(made):
    connections = Connections()
    for _ in range(5):
        assert connections.sql("host=a", "select 1") == [(1,)]
    assert [conninfo for conninfo, _ in made] == ["host=a"] * 3
    assert [connection.closed for _, connection in made] == [True, True, False]


@pytest.mark.parametrize(("statement", "error"), [("wrong", psycopg.errors.SyntaxError), ("slow", psycopg.errors.QueryCanceled)])
def test_a_statement_that_fails_is_sent_once_and_loses_no_connection(made, statement, error):
    connections = Connections()
    connections.sql("host=a", "select 1")
    with pytest.raises(error):
        connections.sql("host=a", statement)
    assert [(connection.lives, connection.closed) for _, connection in made] == [(0, False)]


def test_each_server_has_its_own_and_they_are_closed_by_name(made):
    connections = Connections()
    connections.sql("host=a", "select 1")
    connections.sql("host=b", "select 1")
    connections.close("host=a")
    connections.close("host=a")
    connections.close("host=never")
    assert [(conninfo, connection.closed) for conninfo, connection in made] == [("host=a", True), ("host=b", False)]


def test_a_wait_on_a_connection_can_be_broken_from_another_thread(made, monkeypatch):
    """The connection's other end is a process that never answers."""
    ours, theirs = socket.socketpair()
    connections = Connections()
    connections.interrupt("host=a")
    connections.sql("host=a", "select 1")
    made[0][1].fileno = ours.fileno
    threading.Timer(0.05, connections.interrupt, ["host=a"]).start()
    assert ours.recv(1) == b"", "the wait has ended"
    ours.close()
    theirs.close()
    connections.interrupt("host=a")


class Frozen(Connection):
    """A connection whose server answers once, and then never: a waiting caller is interrupted."""

    def __init__(self, give_up) -> None:
        super().__init__(1)
        self.give_up = give_up

    def execute(self, statement, parameters):
        if self.lives == 0:
            self.give_up()
        return super().execute(statement, parameters)

    def fileno(self):
        raise ValueError("closed")


def test_what_was_interrupted_is_not_run_again(made, monkeypatch):
    connections = Connections()
    frozen = Frozen(lambda: connections.interrupt("host=a"))
    connections._open["host=a"] = frozen
    connections.sql("host=a", "select 1")
    with pytest.raises(psycopg.OperationalError):
        connections.sql("host=a", "select 1")
    assert made == [] and frozen.closed
    assert connections.sql("host=a", "select 1") == [(1,)], "the next statement gets a new connection"


def test_what_is_interrupted_while_it_connects_is_not_sent(monkeypatch):
    connections, connection = Connections(), Connection(2)

    def connect(conninfo, **options):
        connections.interrupt(conninfo)
        return connection

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(psycopg.OperationalError, match="interrupted"):
        connections.sql("host=a", "select 1")
    assert connection.closed and connection.lives == 2
