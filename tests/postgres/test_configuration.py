from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.node.files import UnsafeFileError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import configuration

# Lines and values according to the rules of guc-file.l.
READ = [
    ("work_mem = 64MB", {"work_mem": "64MB"}),
    ("work_mem 64MB", {"work_mem": "64MB"}),
    ("work_mem=64MB#comment", {"work_mem": "64MB"}),
    ("  Work_Mem\t=\t'64 MB'  # comment", {"work_mem": "64 MB"}),
    ("log_line_prefix='%m [%p] '", {"log_line_prefix": "%m [%p] "}),
    ("a = 'it''s'", {"a": "it's"}),
    (r"a = 'it\'s \\ \101 \n'", {"a": "it's \\ A \n"}),
    ("a = '# no comment'", {"a": "# no comment"}),
    ("a = ''", {"a": ""}),
    ("a = 1\na = 2", {"a": "2"}),
    ("seq_page_cost = 1.5e-1", {"seq_page_cost": "1.5e-1"}),
    ("unix_socket_permissions = 0777", {"unix_socket_permissions": "0777"}),
    ("a = -1", {"a": "-1"}),
    ("a = 0x1F", {"a": "0x1F"}),
    ("timezone = Europe/Berlin-x:y.z", {"timezone": "Europe/Berlin-x:y.z"}),
    ("auto_explain.log_min_duration = 5s", {"auto_explain.log_min_duration": "5s"}),
    ("port'5'", {"port": "5"}),
    ("a = on\r\nb = off\r\n", {"a": "on", "b": "off"}),
    ("# only a comment\n\n   \n", {}),
]


@pytest.mark.parametrize(("text", "settings"), READ)
def test_read(text: str, settings: dict[str, str]) -> None:
    assert configuration.read(text).settings == settings


@pytest.mark.parametrize("line", ["shared_buffers", "a =", "a b c", "a = 'open", "1 = 2", "a = b = c", "a.b.c = 1", "= 1", "a = 'x' y"])
def test_what_postgresql_refuses_is_a_message_with_its_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"my\.conf, line 2: "):
        configuration.read(f"# first\n{line}\n", "my.conf")


def test_includes_are_told_and_not_followed() -> None:
    read = configuration.read("include 'a.conf'\ninclude_dir = 'conf.d'\nwork_mem = 1MB")
    assert list(read.includes) == ["include 'a.conf'", "include_dir 'conf.d'"]
    assert read.settings == {"work_mem": "1MB"}


def test_of_what_a_file_includes_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    """A pipe would hold up the reader for ever, and a device would fill its memory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"#" * (2**20 + 1))
    (tmp_path / "real").write_text("work_mem = 2MB\n")
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "postgresql.auto.conf")
    names = ("pipe", "device", "large", "link")
    (tmp_path / "postgresql.conf").write_text("".join(f"include '{name}'\n" for name in names))
    found = configuration.read_files(LocalNode(), str(tmp_path / "postgresql.conf"))
    assert found.settings == {"work_mem": "2MB"}
    reasons = ("pipe is no regular file", "zero is no regular file", "large has more than 1,048,576 bytes", "auto.conf is no regular file")
    assert len(found.includes) == len(reasons)
    assert all(reason in text for reason, text in zip(reasons, found.includes, strict=True)), found.includes
    with pytest.raises(UnsafeFileError, match="no regular file"):
        configuration.read_files(LocalNode(), "/dev/zero")


NAMES = st.from_regex(r"\A[a-z_][a-z0-9_]{0,10}(\.[a-z_][a-z0-9_]{0,10})?\Z").filter(lambda name: not name.startswith("include"))
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_written_is_read_back(settings: dict[str, str]) -> None:
    assert configuration.read(configuration.write(settings)).settings == settings


AWKWARD = [
    "it's",
    "back\\slash",
    "\\'",
    "''",
    "a\nb",
    "tab\there",
    "\\n",
    "# x",
    "\x01\x7f",
    "ünï → ☃",
    "trailing\\",
    " both ",
    "\\\\'",
    "\\101",
]


@pytest.mark.parametrize("value", AWKWARD)
def test_postgresql_reads_back_what_is_written(value: str, installation, node: LocalNode, account, place) -> None:
    """Difficult values for the escape rules, read back by PostgreSQL."""
    assert _as_postgresql_reads_it(value, installation, node, account, place) == value


def test_postgresql_reads_back_anything(installation, node: LocalNode, account, place, seed: int) -> None:
    import random

    chance = random.Random(seed)
    for _ in range(20):
        value = "".join(chance.choice("ab'\\\n\r\t\b\f\"#=$ é☃01") for _ in range(chance.randint(0, 30)))
        assert _as_postgresql_reads_it(value, installation, node, account, place) == value


def _as_postgresql_reads_it(value: str, installation, node: LocalNode, account: str | None, place) -> str:
    directory = place / "cluster"
    node.make_dir(str(directory), user=account)
    (directory / "postgresql.conf").write_text(configuration.write({"pgherd.test": value}), encoding="utf-8")
    out = place / "out"
    out.unlink(missing_ok=True)
    argv = [installation.tool("postgres"), "-C", "pgherd.test", "-D", str(directory)]
    assert node.spawn(Command(argv, stdout=str(out))).wait(30) == 0
    return out.read_bytes().decode()[:-1]


def test_names_that_no_file_can_hold_are_refused() -> None:
    for name in ("a b", "a=b", "", "a\nb", "a.b.c", "1a"):
        with pytest.raises(UsageError):
            configuration.write({name: "x"})
    with pytest.raises(UsageError, match="NUL"):
        configuration.quote("a\0b")


def test_parse_set() -> None:
    assert configuration.parse_set(["Work_Mem = 64MB", "a=b=c", "log_line_prefix='%m '", "x=", "work_mem=1MB"]) == {
        "work_mem": "1MB",
        "a": "b=c",
        "log_line_prefix": "%m ",
        "x": "",
    }


@pytest.mark.parametrize("wrong", ["work_mem", "=64MB", "a b=1", "a.b.c=1"])
def test_parse_set_says_how_to_write_it(wrong: str) -> None:
    with pytest.raises(UsageError, match="name=value"):
        configuration.parse_set([wrong])
