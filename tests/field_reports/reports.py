"""Inputs that real users gave to neighbouring tools, from public bug reports. A further report is a further row.

Each row has a name, the input, and the right result. The tests of this directory are sorted by the kind of fault.
"""

from __future__ import annotations

import errno
from typing import Literal, NamedTuple


class Table(NamedTuple):
    """A table for ``fit``: its pairs of load and throughput, or a part of the message that refuses it."""

    report: str
    text: str
    right: list[tuple[float, float]] | str


PAIRS: list[tuple[float, float]] = [(1, 1050), (2, 2010), (4, 3900), (8, 7200), (16, 11400)]
DECIMALS = [(1.0, 10.5), (2.0, 20.1)]

TABLES = [
    Table(
        "grouped thousands separate cells", "clients,tps\n1,1,050\n2,2,010\n4,3,900\n", "line 2 has 3 cells, but the table has 2 columns"
    ),
    Table("a later row has more cells", "clients,tps\n1,900\n2,1,750\n", "line 3 has 3 cells"),
    Table("no header, a later row has more cells", "1,900\n2,1,750\n", "line 2 has 3 cells"),
    Table(
        "grouped thousands in quotes",
        'clients,tps\n1,"1,050"\n2,"2,010"\n4,"3,900"\n8,"7,200"\n16,"11,400"\n',
        PAIRS,
    ),
    Table("decimal commas and semicolons", "clients;tps\n1;10,5\n2;20,1\n", DECIMALS),
    Table("decimal commas, all with three digits", "clients;tps\n1;1,050\n2;2,010\n", [(1, 1.05), (2, 2.01)]),
    Table("points group thousands", "clients;tps\n1;1.050,5\n2;2.010,0\n", [(1, 1050.5), (2, 2010)]),
    Table("decimal commas and tabs", "clients\ttps\n1\t10,5\n2\t20,1\n", DECIMALS),
    Table("quoted decimal commas", 'clients,tps\n1,"10,5"\n2,"20,1"\n', DECIMALS),
    Table("grouped thousands and tabs", "clients\ttps\n1\t1,050\n2\t2,010\n", "'1,050' may be a decimal or a grouped number"),
    Table("grouped decimals and tabs", "clients\ttps\n1\t1,050.5\n2\t2,010\n", [(1, 1050.5), (2, 2010)]),
    Table("one quoted comma", 'clients,tps\n1,5\n2,"12,500"\n', "line 3: '12,500' may be a decimal or a grouped number"),
    Table("one point between semicolons", "clients;tps\n1;900\n2;1.050\n", "line 3: '1.050' may be a decimal or a grouped number"),
    Table("one comma and a zero row", 'clients,tps\n0,0\n1,"1,050"\n2,"2,010"\n', [(1, 1050), (2, 2010)]),
    Table("a quoted comma beside a larger number", 'clients,tps\n1,900\n2,"1,050"\n3,"1,050,000"\n', [(1, 900), (2, 1050), (3, 1050000)]),
    Table("both marks, and each may group", "clients;tps\n1;1.001\n2;1,250\n", "line 2: '1.001' may be a decimal or a grouped number"),
    Table("both decimal marks", "clients;tps\n1;10,5\n2;20.1\n", "with a decimal point and numbers with a decimal comma"),
    Table("blanks", "clients  tps\n 1  1050\n 2  2010\n", [(1, 1050), (2, 2010)]),
    Table("blanks without a header", "1 1050\n2 2010\n", [(1, 1050), (2, 2010)]),
    Table("a comma in the header only", "clients\ttps, mean\n1\t10.5\n2\t20.1\n", DECIMALS),
    Table("a semicolon in the header only", "clients,tps (1/s; mean)\n1,10.5\n2,20.1\n", DECIMALS),
    Table("spaces and apostrophes group thousands", "clients;tps\n1;1\u202f050\n2;2'010\n", [(1, 1050), (2, 2010)]),
    Table("a zero row", "clients,tps\n0,0\n1,1050\n2,2010\n", [(1, 1050), (2, 2010)]),
    Table("a stalled load", "clients,tps\n1,1050\n2,0\n", "line 3: '0' under tps is not a number above zero"),
    Table("a first row that is no header", "1,64,quiet\n2,120,quiet\n", "'1' is a number and 'quiet' is none"),
    Table(
        "a load average", "clients,tps,load\n1,1050,0.4\n2,2010,0.9\n", "clients and load may each be the load; choose with --load-column"
    ),
    Table("two throughputs", "clients,tps,qps\n1,1,2\n", "tps and qps may each be the throughput; choose with --throughput-column"),
    Table("a column twice", "clients,tps,tps\n1,1,2\n", "tps and tps may each be the throughput"),
    Table("the load is the second column", "speed,clients\n1050,1\n2010,2\n", [(1, 1050), (2, 2010)]),
    Table("grouped, without a header", "1;1,050,000\n2;2,010,000\n", [(1, 1050000), (2, 2010000)]),
]


class Output(NamedTuple):
    """Output of a command, a pattern of ``exec --extract``, and the number in it."""

    report: str
    text: str
    pattern: str
    right: float | None


OUTPUTS = [
    Output("a decimal comma", "Zeit: 12,5 ms", r"Zeit: (\S+)", 12.5),
    Output("a decimal comma below one", "0,125 s", r"(\S+) s", 0.125),
    Output("grouped thousands", "total 1,234,567", r"total (\S+)", 1234567),
    Output("points group thousands", "total 1.234.567,8", r"total (\S+)", 1234567.8),
    Output("apostrophes group thousands", "total 1'234'567.8", r"total (\S+)", 1234567.8),
    Output("the end of a sentence", "It took 12.5.", r"took ([\d.,]+)", 12.5),
    Output("the middle of a sentence", "It took 12.5, then stopped.", r"took ([\d.,]+)", 12.5),
    Output("a list", "1,2,3", r"([\d,]+)", None),
    Output("a version", "4.18.0", r"([\d.]+)", None),
    Output("no number", "inf", r"(\w+)", None),
    Output("not a number", "nan", r"(\w+)", None),
]


class Name(NamedTuple):
    """A value of --script with the files that exist: its file and weight, or a part of the message that refuses it."""

    report: str
    text: str
    files: tuple[str, ...]
    right: tuple[str, int] | str


NAMES = [
    Name("an account at a host", "ann@corp.example/q.sql", ("ann@corp.example/q.sql",), ("ann@corp.example/q.sql", 1)),
    Name("an account at a host, with a weight", "ann@corp.example/q.sql@3", ("ann@corp.example/q.sql",), ("ann@corp.example/q.sql", 3)),
    Name("a name that ends like a weight", "q.sql@3", ("q.sql@3", "q.sql"), ("q.sql@3", 1)),
    Name("a weight for such a name", "q.sql@3@2", ("q.sql@3", "q.sql"), ("q.sql@3", 2)),
    Name("a missing file at a host", "ann@corp.example/q.sql", (), ("ann@corp.example/q.sql", 1)),
    Name("a missing file", "q.sql@new", (), "there is no such file"),
    Name(
        "blanks, umlauts, quotes and signs",
        "größe = 'x', \"y\": 50% {n}.sql",
        ("größe = 'x', \"y\": 50% {n}.sql",),
        ("größe = 'x', \"y\": 50% {n}.sql", 1),
    ),
]


class Sql(NamedTuple):
    """An SQL file for psql: its backslash commands with their lines, and the names of files that it reads."""

    report: str
    text: str
    commands: list[tuple[int, str]]
    files: set[str]


SQL = [
    Sql("stdin in a comment", "-- rows come from stdin\nSELECT 1;\n\\copy t from a.csv\n", [(3, "copy")], {"a.csv"}),
    Sql("stdin in a block comment", "/* copied from stdin; */\n\\copy t from a.csv\n", [(2, "copy")], {"a.csv"}),
    Sql("stdin in a string", "SELECT 'taken from stdin;';\n\\copy t from a.csv\n", [(2, "copy")], {"a.csv"}),
    Sql("stdin in a dollar quote", "DO $$ BEGIN -- from stdin;\nEND $$;\n\\copy t from a.csv\n", [(3, "copy")], {"a.csv"}),
    Sql("a column called stdin", "SELECT * FROM stdin;\n\\copy t from a.csv\n", [(2, "copy")], {"a.csv"}),
    Sql("inline rows", "COPY t (a, b) FROM stdin WITH (FORMAT csv);\n\\i b.sql\n'\n\\.\n\\copy t from a.csv\n", [(5, "copy")], {"a.csv"}),
    Sql("inline rows, Windows line ends", "COPY t FROM STDIN;\r\n\\i b.sql\r\n\\.\r\n\\copy t from a.csv\r\n", [(4, "copy")], {"a.csv"}),
    Sql(
        "inline rows of two statements",
        "COPY t FROM STDIN \\; COPY t FROM STDIN;\n\\i b\n\\.\n\\i c\n\\.\n\\copy t from a.csv\n",
        [(6, "copy")],
        {"a.csv"},
    ),
    Sql("a line that is not the end of rows", "COPY t FROM STDIN;\n\\.x\n\\i b.sql\n\\.\n\\copy t from a.csv\n", [(5, "copy")], {"a.csv"}),
    Sql("commands after the statement on its line", "COPY t FROM STDIN; \\copy u from a.csv\n\\i b\n\\.\n", [(1, "copy")], {"a.csv"}),
    Sql(
        "stdin in a list of columns",
        '\\copy t ("from stdin") from a.csv\n\\copy t from b.csv\n',
        [(1, "copy"), (2, "copy")],
        {"a.csv", "b.csv"},
    ),
    Sql("two commands on a line", "\\set n 1 \\i other.sql\n", [(1, "set"), (1, "i")], {"other.sql"}),
    Sql("back to SQL on a line", "\\set n 1 \\\\ SELECT '\\i a.sql';\n", [(1, "set")], set()),
    Sql("an identifier with a dollar", "SELECT ü$a$ FROM t;\n\\copy t from a.csv\n-- $a$\n", [(2, "copy")], {"a.csv"}),
    Sql("an open string at the end", "SELECT 1;\n\\copy t from a.csv\nSELECT 'it\n\\i b.sql\n", [(2, "copy")], {"a.csv"}),
    Sql("a dump that connects", "CREATE DATABASE shop;\n\\connect shop\nCREATE TABLE a ();\n", [(2, "connect")], set()),
]


class Message(NamedTuple):
    """An error that iperf3 reports for a client, and True if pgherd caused it by ending the client."""

    report: str
    text: str
    right: bool


MESSAGES = [
    Message("3.12", "interrupt - the client has terminated", True),
    Message("3.19", "interrupt - the client has terminated by signal Interrupt(2)", True),
    Message("the server ended", "interrupt - the server has terminated", False),
    Message("3.19, the server ended", "interrupt - the server has terminated by signal Interrupt(2)", False),
    Message("another signal", "interrupt - the client has terminated by signal Terminated(15)", False),
    Message("a lost server", "control socket has closed unexpectedly", False),
]


class Files(NamedTuple):
    """Files of a configuration by name: the settings in PostgreSQL's order, and parts of the warnings on files that are not read."""

    report: str
    files: dict[str, str]
    settings: dict[str, str]
    warnings: tuple[str, ...] = ()


CONFIGURATIONS = [
    Files(
        "ALTER SYSTEM",
        {"postgresql.conf": "work_mem = 1MB\njit = off\n", "postgresql.auto.conf": "work_mem = '7MB'\n"},
        {"work_mem": "7MB", "jit": "off"},
    ),
    Files(
        "a directory of files",
        {
            "postgresql.conf": "include_dir 'conf.d'\nwork_mem = 3MB\n",
            "conf.d/20.conf": "work_mem = 1MB\njit = on\n",
            "conf.d/10.conf": "jit = off\n",
            "conf.d/.30.conf": "jit = off\n",
            "conf.d/40.conf.bak": "jit = off\n",
        },
        {"work_mem": "3MB", "jit": "on"},
    ),
    Files(
        "Debian's layout",
        {"postgresql.conf": "data_directory = 'main'\njit = off\n", "main/postgresql.auto.conf": "work_mem = '7MB'\n"},
        {"work_mem": "7MB", "jit": "off"},
    ),
    Files("a file without its cluster", {"postgresql.conf": "jit = off\n"}, {"jit": "off"}),
    Files(
        "the data directory of another host",
        {"postgresql.conf": "data_directory = '/nowhere/15/main'\njit = off\n"},
        {"jit": "off"},
        ("/nowhere/15/main/postgresql.auto.conf: No such file",),
    ),
    Files(
        "files that are missing",
        {"postgresql.conf": "include_if_exists 'a.conf'\ninclude 'b.conf'\ninclude_dir 'c.d'\njit = off\n"},
        {"jit": "off"},
        ("/b.conf: No such file", "/c.d: No such file"),
    ),
    Files(
        "files that include each other",
        {"postgresql.conf": "jit = off\ninclude 'postgresql.conf'\nwork_mem = 1MB\n"},
        {"jit": "off", "work_mem": "1MB"},
        ("more than 10 files",),
    ),
]


class Remedy(NamedTuple):
    """A cause why no cgroup can be created: errno (None: the place of the process), uid, container, version; and a part of the advice."""

    report: str
    number: int | None
    uid: int
    container: bool
    version: Literal["v1", "v2"]
    right: str


REMEDIES = [
    Remedy("root in a plain Docker container", errno.EROFS, 0, True, "v2", "run --privileged"),
    Remedy("root in a plain Docker container, v1", errno.EROFS, 0, True, "v1", "run --privileged"),
    Remedy("a user in a container", errno.EROFS, 1000, True, "v2", "run --privileged"),
    Remedy("hidden cgroups", errno.ENOENT, 0, False, "v1", "findmnt -R /sys/fs/cgroup"),
    Remedy("read-only cgroups of a host", errno.EROFS, 0, False, "v1", "remount,rw"),
    Remedy("an ordinary user, v1", errno.EACCES, 1000, False, "v1", "run pgherd as root, or boot with cgroup v2"),
    Remedy("an ordinary user, v2", errno.EACCES, 1000, False, "v2", "systemd-run --user --scope -p Delegate=yes"),
    Remedy("root beside other processes", None, 0, False, "v2", "systemd-run --scope -p Delegate=yes"),
    Remedy("root in a container that shares its cgroup", None, 0, True, "v2", "--cgroupns=private"),
    Remedy("root of a user namespace", errno.EPERM, 0, False, "v2", "root of the host"),
]
