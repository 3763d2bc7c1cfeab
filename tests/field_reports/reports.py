"""Inputs that real users gave to neighbouring tools, from public bug reports. A further report is a further row.

Each row has a name, the input, and the right result. ``KINDS`` names the rows of each kind of fault, and the tests that use them.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
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
    Table("grouped, without a header", "1;1,050,000\n2;2,010,000\n", [(1, 1050000), (2, 2010000)]),
]

COLUMNS = [
    Table(
        "a load average", "clients,tps,load\n1,1050,0.4\n2,2010,0.9\n", "clients and load may each be the load; choose with --load-column"
    ),
    Table("two throughputs", "clients,tps,qps\n1,1,2\n", "tps and qps may each be the throughput; choose with --throughput-column"),
    Table("a column twice", "clients,tps,tps\n1,1,2\n", "tps and tps may each be the throughput"),
    Table("the load is the second column", "speed,clients\n1050,1\n2010,2\n", [(1, 1050), (2, 2010)]),
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


class DatabaseName(NamedTuple):
    """Name of a database on an external server, and whether the DSN is a URL."""

    report: str
    name: str
    url: bool


ODD_NAME = "größe = 'x', \"y\" \\z: 50% @{n}?"
DATABASE_NAMES = [DatabaseName("as keywords", ODD_NAME, False), DatabaseName("as a URL", ODD_NAME, True)]


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


class Init(NamedTuple):
    """An --init-script, and a pattern of the message that refuses it, None if it is loaded."""

    report: str
    text: str
    right: str | None


INITS = [
    Init("errors are ignored", "CREATE TABLE a ();\n\\set ON_ERROR_STOP off\nDROP TABLE b;\n", r"init\.sql:2: .*IF EXISTS"),
    Init("errors are ignored, shortened", "\\set ON_ERROR_STOP F\nDROP TABLE b;\n", r"init\.sql:1: .*IF EXISTS"),
    Init("errors are ignored, by a number in quotes", "\\set ON_ERROR_STOP '0'\n", r"init\.sql:1: .*IF EXISTS"),
    Init("errors are ignored by default", "\\unset ON_ERROR_STOP\nDROP TABLE b;\n", r"init\.sql:1: .*IF EXISTS"),
    Init("errors are ignored, quoted", "\\set 'ON_ERROR_STOP' 'off'\n", r"init\.sql:1: .*IF EXISTS"),
    Init("errors end the file", "\\set ON_ERROR_STOP on\n\\set ON_ERROR_STOP\n\\set ON_ERROR_STOP 1\nCREATE TABLE a ();\n", None),
    Init("other variables", "\\set on_error_stop off\n\\unset scale\n-- \\unset ON_ERROR_STOP\nCREATE TABLE a ();\n", None),
    Init("an early end", "CREATE TABLE a ();\n\\if :done \\q\n\\endif\nCREATE TABLE b ();\n", r"init\.sql:2: \\q ends the file"),
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


class Words(NamedTuple):
    """Messages of a tool, and the reason that pgherd reads in them."""

    report: str
    text: str
    right: str


FULL = "fio: io_u error on file /x/data: No space left on device: write offset=0, buflen=8192"
CRASH = "fio: pid=77, got signal=11"
FIO_MESSAGES = [
    Words("an error, then an interruption", f"{FULL}\n\nfio: terminating on signal 2\n", FULL),
    Words("an interruption, then an error", f"\nfio: terminating on signal 15\n{FULL}\n", FULL),
    Words("a signal that pgherd did not send", f"{CRASH}\n\nfio: terminating on signal 2\n", CRASH),
    Words("only an interruption", "\nfio: terminating on signal 2\n", "fio: terminating on signal 2"),
]

MAY_NOT, CANNOT = "this user may not read", "does not support the perf event"
PERF_REFUSALS = [
    Words(
        "4.19",
        "Error:\nYou may not have permission to collect stats.\n\nConsider tweaking /proc/sys/kernel/perf_event_paranoid,\n",
        MAY_NOT,
    ),
    Words(
        "6.1",
        "Error:\nAccess to performance monitoring and observability operations is limited.\nConsider adjusting "
        "/proc/sys/kernel/perf_event_paranoid setting to open\naccess to performance monitoring\n",
        MAY_NOT,
    ),
    Words("6.1, one event", "Error:\nNo permission to enable dTLB-loads event.\n", MAY_NOT),
    Words("an unknown event", "event syntax error: 'dTLB-loads'\n                     \\___ Bad event name\n", CANNOT),
]


class Retransmits(NamedTuple):
    """Retransmits of a second as iperf3 writes them, and those of the result (None: unknown)."""

    report: str
    count: int
    right: float | None


RETRANSMITS = [
    Retransmits("a count", 3, 3.0),
    Retransmits("a negative count", -1, None),
    Retransmits("a negative count without a sign", 2**32 - 2, None),
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
    Files(
        "the command line of a cluster's manager",
        {
            "postgresql.conf": "work_mem = 3MB\njit = off\nmax_connections = 10\n",
            "postgresql.auto.conf": "work_mem = '7MB'\n",
            "postmaster.opts": '/usr/bin/postgres "-D" "/d" "--max-connections=250" "-c" "work_mem=9MB" "-B" "4096" "-F"\n',
        },
        {"work_mem": "9MB", "jit": "off", "max_connections": "250", "shared_buffers": "4096", "fsync": "off"},
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
    delegated: bool = True


REMEDIES = [
    Remedy("a user's systemd that delegates memory and pids only", None, 1000, False, "v2", "Delegate=cpu cpuset io", delegated=False),
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


class Pooler(NamedTuple):
    """Mode of PgBouncer and the startup parameters that it ignores, so that no session is read-only; a part of the refusal."""

    report: str
    mode: str
    ignored: str
    right: str


POOLERS = [
    Pooler("sessions", "session", "", "transaction_read_only is off"),
    Pooler("sessions, options ignored", "session", "options", "transaction_read_only is off"),
    Pooler("transactions", "transaction", "", "transaction_read_only is off"),
    Pooler("transactions, options ignored", "transaction", "options", "transaction_read_only is off"),
]


class Account(NamedTuple):
    """A user of the host: the uid, and whether HOME is set. What ``doctor`` and a study print about it."""

    report: str
    uid: int
    home: bool
    doctor: str
    right: tuple[str, ...]


ACCOUNTS = [
    Account("a uid without an entry", 54321, True, "uid 54321 has no entry", ("uid 54321 has no entry", "getent passwd")),
    Account("a uid without a home", 54321, False, "uid 54321 has no home directory", ("has no home directory", "set HOME")),
]


class Preloading(NamedTuple):
    """Settings of a measured server, and those under which its database is loaded."""

    report: str
    settings: dict[str, str]
    right: dict[str, str]


STATEMENTS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": "2000"}

PRELOADING = [
    Preloading("a preloaded library and its setting", STATEMENTS | {"work_mem": "1MB"}, STATEMENTS),
    Preloading("a library of sessions", {"session_preload_libraries": "auto_explain"}, {"session_preload_libraries": "auto_explain"}),
    Preloading("a variable of a script", {"app.tenant": "7", "jit": "off"}, {"app.tenant": "7"}),
    Preloading("how values are stored", {"default_toast_compression": "lz4", "jit": "off"}, {"default_toast_compression": "lz4"}),
    Preloading(
        "what statements may need",
        {"wal_level": "logical", "max_prepared_transactions": "10", "max_locks_per_transaction": "256", "work_mem": "1MB"},
        {"wal_level": "logical", "max_prepared_transactions": "10", "max_locks_per_transaction": "256"},
    ),
    Preloading("what a literal means", {"DateStyle": "ISO, DMY", "random_page_cost": "1.1"}, {"DateStyle": "ISO, DMY"}),
    Preloading("no library", {"shared_preload_libraries": "", "work_mem": "5MB"}, {}),
]


class ReservedPages(NamedTuple):
    """Options of a study on a host on which the user has reserved huge pages, and whether servers take them."""

    report: str
    options: tuple[str, ...]
    right: bool


RESERVED_PAGES = [
    ReservedPages("without being asked", (), False),
    ReservedPages("asked for", ("--set", "huge_pages=try"), True),
]


class Refused(NamedTuple):
    """Options of a study that can have no result, with the files that they name, and a pattern of the refusal."""

    report: str
    options: tuple[str, ...]
    files: dict[str, str]
    right: str


SLEEP = {"slow.sql": "SELECT pg_sleep(3);\n"}

RATES = [Refused("no transaction is due", ("--rate", "0.01", "--duration", "4s"), {}, "give --rate 2.5 or more")]
LONG_TRANSACTIONS = [
    Refused(
        "a window shorter than a transaction",
        ("--script", "slow.sql", "--duration", "2s"),
        SLEEP,
        r"longer than the measured time of a trial \(2 s\)",
    ),
]
EMPTY_DATABASES = [
    Refused(
        "an init script without objects",
        ("--script", "slow.sql", "--init-script", "nothing.sql"),
        SLEEP | {"nothing.sql": "-- \\connect\nSELECT 1;\n"},
        r"the database is empty: --init-script .*nothing\.sql creates nothing in it",
    ),
]


class OpenFiles(NamedTuple):
    """Limits of open files (soft, hard) and the clients of a study; parts of the refusal, None if the soft limit is raised."""

    report: str
    soft: int
    hard: int
    clients: int
    right: tuple[str, ...] | None


OPEN_FILES = [
    OpenFiles("the soft limit of a login", 128, 4096, 150, None),
    OpenFiles("a low hard limit", 300, 400, 500, ("pgbench needs 56", "the hard limit of this process is 400")),
]


class Tasks(NamedTuple):
    """A limit of processes, the clients of a study, and parts of the refusal, None if the limit is high enough."""

    report: str
    limit: Literal["pids.max", "ulimit -u"]
    value: int
    clients: int
    right: tuple[str, ...] | None


TASKS = [
    Tasks("pids.max of a container", "pids.max", 100, 500, ("at least 50", "/pids.max", "is 100", "--pids-limit")),
    Tasks("pids.max that suffices", "pids.max", 1000, 500, None),
    Tasks("processes of a user", "ulimit -u", 100, 500, ("at least 50", "(ulimit -u) is 100", "LimitNPROC=")),
    Tasks("processes of a user that suffice", "ulimit -u", 20_000, 500, None),
]


class Connection(NamedTuple):
    """Connection parameters, with {port} for the server's port, and the words of them that must reach the driver."""

    report: str
    text: str
    right: tuple[str, ...]


CONNECTIONS = [
    Connection("an address without a name", "host=db.invalid hostaddr=127.0.0.1 port={port}", ("hostaddr=127.0.0.1",)),
    Connection(
        "timeouts",
        "host=127.0.0.1 port={port} keepalives=0 tcp_user_timeout=9000 connect_timeout=3 application_name=mine",
        ("keepalives=0", "tcp_user_timeout=9000", "connect_timeout=3", "application_name=mine"),
    ),
    Connection("a service", "service=theirs", ("keepalives_idle=7",)),
    Connection(
        "the root certificate of this user", "host=127.0.0.1 port={port} sslmode=verify-full", ("sslmode=verify-full", "sslrootcert=")
    ),
]


class Groups(NamedTuple):
    """Files of the cgroups around pgherd by path, and the limits: cores, memory, and the group of the memory limit.

    pgherd is in /a.slice/b.scope.
    """

    report: str
    files: dict[str, str]
    right: tuple[float | None, int | None, str | None]


GROUPS = [
    Groups(
        "the tightest of the chain",
        {"a.slice/cpu.max": "150000 100000", "a.slice/memory.max": "4294967296", "a.slice/b.scope/memory.max": "8589934592"},
        (1.5, 4 << 30, "a.slice"),
    ),
    Groups("no throttling", {"a.slice/memory.high": "max", "a.slice/memory.max": "4294967296"}, (None, 4 << 30, "a.slice")),
    Groups("throttling of a parent", {"a.slice/memory.high": "2147483648"}, (None, 2 << 30, "a.slice")),
    Groups(
        "throttling below a limit",
        {"a.slice/memory.max": "4294967296", "a.slice/b.scope/memory.high": "2147483648"},
        (None, 2 << 30, "a.slice/b.scope"),
    ),
]


class OtherLimits(NamedTuple):
    """Files of the cgroups around pgherd (/a.slice/b.scope) by path, and their limits other than those of CPU, memory and tasks."""

    report: str
    files: dict[str, str]
    right: list[str]


OTHER_LIMITS = [
    OtherLimits(
        "no limit", {"a.slice/io.max": "", "a.slice/memory.swap.max": "max", "a.slice/hugetlb.2MB.max": "max", "a.slice/pids.max": "5"}, []
    ),
    OtherLimits(
        "I/O of a service",
        {"a.slice/io.max": "8:0 rbps=max wbps=10485760 riops=max wiops=max\n8:16 rbps=max wbps=max riops=100 wiops=max"},
        ["io.max of a.slice is 8:0 rbps=max wbps=10485760 riops=max wiops=max; 8:16 rbps=max wbps=max riops=100 wiops=max"],
    ),
    OtherLimits("no swap", {"a.slice/b.scope/memory.swap.max": "0"}, ["memory.swap.max of a.slice/b.scope is 0"]),
    OtherLimits(
        "a pod without huge pages",
        {"a.slice/hugetlb.2MB.max": "0", "a.slice/hugetlb.2MB.rsvd.max": "0"},
        ["hugetlb.2MB.max of a.slice is 0", "hugetlb.2MB.rsvd.max of a.slice is 0"],
    ),
]


class GroupTasks(NamedTuple):
    """Files of the cgroups around pgherd (/a.slice/b.scope) by path, and each limit of tasks: its group, the limit, the tasks in use."""

    report: str
    files: dict[str, str]
    right: list[tuple[str, int, int]]


GROUP_TASKS = [
    GroupTasks("no limit", {"a.slice/pids.max": "max", "a.slice/b.scope/pids.max": "max"}, []),
    GroupTasks("a limit of a parent", {"a.slice/pids.max": "100", "a.slice/pids.current": "7"}, [("a.slice", 100, 7)]),
    GroupTasks(
        "a limit of both",
        {"a.slice/pids.max": "100", "a.slice/b.scope/pids.max": "50", "a.slice/b.scope/pids.current": "3"},
        [("a.slice/b.scope", 50, 3), ("a.slice", 100, 0)],
    ),
]


class NumaNodes(NamedTuple):
    """CPUs of each NUMA node, the CPUs that pgherd may use, and the number of nodes."""

    report: str
    cpus: tuple[str, ...]
    usable: tuple[int, ...]
    right: int


NUMA_NODES = [
    NumaNodes("two nodes", ("0,2", "1,3"), (0, 1, 2, 3), 2),
    NumaNodes("a node without CPUs", ("0-3", ""), (0, 1, 2, 3), 1),
    NumaNodes("a cpuset inside one node", ("0,2", "1,3"), (1, 3), 1),
]


class NotRun(NamedTuple):
    """The reason why commands of the documents are not run in tests, and a pattern of their words."""

    report: str
    pattern: str


NOT_RUN = [
    NotRun("needs a server of the user", r"--dsn|--servers|\bhost=|\bdbname="),
    NotRun("needs other hosts", r"^cluster |--cluster|^network --to"),
    NotRun("needs a Prometheus server", r"http://prometheus"),
    NotRun("needs captures of the user", r"^place (rates|orders/)"),
    NotRun("boots guests or fetches their kernel", r"^vm |\bruntime[ =]vm"),
    NotRun("needs a program that is not required", r"my-benchmark|stress-ng"),
    NotRun("runs until it is ended", r"^(ui|watch)\b|--metrics-listen"),
    NotRun("needs an interrupted run", r"^resume\b"),
    NotRun("is the name of a command without its arguments", r"^(capture|compare|gate|report|export|clean|--help)$"),
    NotRun("measures for minutes", r"--verify"),
    NotRun("needs a host of the size in its text", r"--preset E5|--working-set-size 1376MB|--scale 4000"),
    NotRun("needs the files of Debian's PostgreSQL 17", r"--settings-from /etc/"),
]


class Kind(NamedTuple):
    """A kind of fault: its number in the first collection of reports, its rows, and the test file that uses them."""

    number: int
    kind: str
    rows: Sequence[tuple[object, ...]]
    test: str


HERE, SERVERS = "field_reports", "it"
KINDS = [
    Kind(1, "another tool's message compared as a whole", MESSAGES, f"{HERE}/test_other_tools.py"),
    Kind(1, "another tool's message compared as a whole", FIO_MESSAGES, f"{HERE}/test_other_tools.py"),
    Kind(1, "another tool's message compared as a whole", PERF_REFUSALS, f"{HERE}/test_other_tools.py"),
    Kind(1, "another tool's impossible number", RETRANSMITS, f"{HERE}/test_other_tools.py"),
    Kind(2, "a promise that is not verified", POOLERS, f"{SERVERS}/test_external.py"),
    Kind(3, "doctor and study disagree", ACCOUNTS, f"{HERE}/test_host.py"),
    Kind(4, "the loading server differs from the measured server", PRELOADING, f"{HERE}/test_loading.py"),
    Kind(4, "the loading server differs from the measured server", PRELOADING, f"{SERVERS}/test_field_reports.py"),
    Kind(5, "state of the host by chance", RESERVED_PAGES, f"{SERVERS}/test_hugepages.py"),
    Kind(6, "numbers as people write them", TABLES, f"{HERE}/test_numbers.py"),
    Kind(6, "numbers as programs write them", OUTPUTS, f"{HERE}/test_numbers.py"),
    Kind(7, "a guessed column", COLUMNS, f"{HERE}/test_numbers.py"),
    Kind(8, "a file that is not the whole truth", CONFIGURATIONS, f"{HERE}/test_names_and_scripts.py"),
    Kind(9, "nothing is a result, too", RATES, f"{SERVERS}/test_field_reports.py"),
    Kind(10, "two timeouts for one thing", LONG_TRANSACTIONS, f"{SERVERS}/test_field_reports.py"),
    Kind(11, "separators inside names", NAMES, f"{HERE}/test_names_and_scripts.py"),
    Kind(11, "separators inside names", DATABASE_NAMES, f"{SERVERS}/test_external.py"),
    Kind(12, "inherited limits", OPEN_FILES, f"{HERE}/test_host.py"),
    Kind(12, "inherited limits", TASKS, f"{HERE}/test_host.py"),
    Kind(13, "psql commands in an init script", EMPTY_DATABASES, f"{SERVERS}/test_field_reports.py"),
    Kind(13, "psql commands in an init script", INITS, f"{HERE}/test_names_and_scripts.py"),
    Kind(14, "text parsed with patterns", SQL, f"{HERE}/test_names_and_scripts.py"),
    Kind(15, "parameters lost on the way", CONNECTIONS, f"{SERVERS}/test_external.py"),
    Kind(16, "limits around pgherd", GROUPS, "host/test_cgroup_parent.py"),
    Kind(16, "limits around pgherd", OTHER_LIMITS, "host/test_cgroup_parent.py"),
    Kind(16, "limits around pgherd", GROUP_TASKS, "host/test_task_limits.py"),
    Kind(16, "nodes that pgherd cannot use", NUMA_NODES, "host/test_cpus.py"),
    Kind(17, "a command of the documents that fails", NOT_RUN, f"{SERVERS}/test_documented_commands.py"),
    Kind(18, "advice that does not fit the cause", REMEDIES, f"{HERE}/test_host.py"),
]
