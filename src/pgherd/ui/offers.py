"""Which studies the page starts, and which of their options it offers.

Only studies of laptop size, and only options that say how much is measured: none that names a file, a program, a device, a server or a
PostgreSQL setting. Whoever may use the page may then load this host for a while, and no more; for the rest there is the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgherd.model.errors import UsageError
from pgherd.model.units import parse_bytes, parse_seconds

LONGEST_SECONDS = 1800.0
"""Time under load beyond which a study is not of laptop size, and is started from the command line."""

_LONGEST = 120
_MOST = 64

Kind = Literal["whole", "number", "wholes", "words", "size", "time", "share", "choice", "flag"]


@dataclass(frozen=True)
class Field:
    """One option: its name on the command line, what is shown, what it takes, what stands in it when the page is opened."""

    name: str
    label: str
    kind: Kind
    hint: str = ""
    choices: tuple[str, ...] = ()
    filled: str = ""


@dataclass(frozen=True)
class Offer:
    """A study: its verb, the question that it answers, the options shown first, and further ones."""

    study: str
    question: str
    first: tuple[Field, ...]
    further: tuple[Field, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """All of them."""
        return self.first + self.further


_WORKLOADS = ("select-only", "tpcb-like", "simple-update", "orders", "random-block")

_WORKLOAD = Field("workload", "Workload", "choice", "pgbench's builtin scripts, or pgherd's own workloads", _WORKLOADS)
_SCALE = Field("scale", "Scale", "whole", "15 MB each; orders: 110 MB each; random-block: MiB", filled="10")
_SECONDS = Field("seconds", "Measured period", "time", "of each trial, such as 5s", filled="5s")
_REPEATS = Field("repeats", "Repeats", "whole", "trials at each point; three and more give an interval", filled="3")
_BUDGET = Field("budget", "Time for all trials", "time", "reruns of tainted trials included, such as 2m", filled="3m")
_CLIENTS = Field("clients", "Clients", "whole", "of each database")
_PLACE: tuple[Field, ...] = (
    Field("vcpus", "vCPUs", "number", "cores given to each database; 0.5 is a half"),
    Field("memory", "Memory", "size", "of each database's container, such as 512MB"),
    Field("runtime", "Runtime", "choice", "what isolates the databases; by itself the best that there is here", ("process", "cgroup")),
    Field("cores", "Cores in all", "number", "that the run may use"),
    Field("host-memory", "Memory in all", "size", "that the run may use, such as 4GB"),
    Field("pg-version", "PostgreSQL", "whole", "major version, such as 17"),
)
_HOW: tuple[Field, ...] = (
    Field("ramp", "Ramp-up", "time", "before each measured period, not counted"),
    Field("protocol", "Protocol", "choice", "how queries are sent", ("simple", "extended", "prepared")),
    Field("client-place", "Clients run", "choice", "inside the containers or outside", ("inside", "outside")),
    Field("seed", "Seed", "whole", "of the order of trials"),
)
_RATE = Field("rate", "Rate", "number", "open loop: transactions per second of each database")

OFFERS: Mapping[str, Offer] = {
    offer.study: offer
    for offer in (
        Offer(
            "density",
            "How many databases does this host hold, and how far from perfect does it scale?",
            (
                Field("points", "Numbers of databases", "wholes", "such as 1,2,4; empty: by the cores"),
                _WORKLOAD,
                _SCALE,
                _SECONDS,
                _REPEATS,
            ),
            (
                _BUDGET,
                _CLIENTS,
                Field("at", "Efficiency", "share", "at which databases count as held, such as 0.85"),
                *_PLACE,
                *_HOW,
                _RATE,
            ),
        ),
        Offer(
            "scaling",
            "How does one server's throughput grow with its clients, and where does it peak?",
            (
                Field("clients", "Numbers of clients", "wholes", "such as 1,2,4,8; empty: by the cores"),
                _WORKLOAD,
                _SCALE,
                _SECONDS,
                _REPEATS,
            ),
            (_BUDGET, *_PLACE, *_HOW),
        ),
        Offer(
            "io-profile",
            "What do the devices below a server see, and what do checkpoints do to it?",
            (
                _WORKLOAD,
                _SCALE,
                Field("checkpoints", "Checkpoints", "whole", "that each trial is to hold"),
                Field("checkpoint-every", "One every", "time", "30s or more", filled="30s"),
            ),
            (_CLIENTS, Field("seconds", "Measured period", "time", "of each trial"), _BUDGET, *_PLACE, *_HOW),
        ),
        Offer(
            "hugepages",
            "What do larger pages of shared memory buy?",
            (
                Field("pages", "Kinds of pages", "words", "such as none,2MB; the first is the baseline"),
                _WORKLOAD,
                _SCALE,
                _SECONDS,
                _BUDGET,
            ),
            (Field("blocks", "Blocks at most", "whole", "each holds every kind once, and the baseline twice"), _CLIENTS, *_PLACE, *_HOW),
        ),
        Offer(
            "consolidation",
            "Which container for databases that share memory?",
            (
                Field("databases", "Databases", "whole", "that share the host", filled="2"),
                Field("schemes", "Schemes", "wholes", "1: 1/1/M, 2: 1/M/M, 3: M/M/M", filled="2,3"),
                Field("warehouses", "Warehouses", "whole", "of each database, 110 MB each", filled="1"),
                Field("period", "Period", "time", "measured length of each", filled="5s"),
            ),
            (
                Field("periods", "Periods", "whole", "of a trial"),
                Field("high", "Clients, busy", "whole", "of a busy database"),
                Field("low", "Clients, quiet", "whole", "of a quiet database"),
                Field("blocks", "Blocks", "whole", "how often everything is measured; 3 for an interval"),
                *_PLACE,
            ),
        ),
        Offer(
            "working-set",
            "How much memory does a load need?",
            (
                Field("clients", "Numbers of clients", "wholes", "each has a working set of its own; empty: 30 and 2"),
                Field("sweeps", "What is varied", "words", "memory, buffers or both", filled="memory"),
                Field("workload", "Workload", "choice", "by itself random-block", _WORKLOADS),
                Field("scale", "Scale", "whole", "random-block: MiB"),
                Field("points", "Sizes", "whole", "of each curve, to begin with"),
            ),
            (
                Field("buffers", "Shared buffers", "size", "while memory is varied; half of the database by itself"),
                Field("configured", "Configured", "size", "memory that each database would be given, for the headroom"),
                Field("seconds", "Measured period", "time", "of each trial"),
                Field("repeats", "Repeats", "whole", "how often each size is measured to begin with"),
                Field("budget", "Time for all trials", "time", "such as 5m"),
                *(field for field in _PLACE if field.name != "memory"),
                *_HOW,
            ),
        ),
        Offer(
            "compression",
            "How far does which data compress, by codec and block size?",
            (
                Field("kinds", "Kinds of data", "words", "that pgherd makes, such as pgbench,realistic; empty: all"),
                Field("codecs", "Codecs", "words", "such as lz4,zstd-3"),
                Field("blocks", "Block sizes", "words", "such as 8k,128k"),
                Field("samples", "Samples", "whole", "segments of 1 MB of each kind", filled="16"),
            ),
            (Field("seed", "Seed", "whole", "of the choice of segments"),),
        ),
        Offer(
            "database-size",
            "How large is a database of a given scale on this PostgreSQL?",
            (
                Field("scales", "Scales", "wholes", "pgbench scale factors to load and measure", filled="1,2,5,10"),
                Field("predict", "Scales to predict", "wholes", "from those that were measured"),
            ),
        ),
        Offer(
            "network",
            "How much does a link between two network namespaces carry, and what bounds it?",
            (
                Field("namespaces", "Two namespaces of this host", "flag", "as root only; both are removed at the end", filled="yes"),
                Field("streams", "Numbers of streams", "wholes", "parallel TCP streams", filled="1,2,4"),
                Field("seconds", "Measured period", "time", "of each trial, such as 3s", filled="3s"),
                Field("limit", "Limit", "words", "bits per second that the link lets through, such as 200M"),
            ),
            (_REPEATS, _BUDGET, Field("delay", "Delay", "time", "that every packet is held up, each way")),
        ),
    )
}
"""Verb → what is offered."""


def arguments(study: str, given: Mapping[str, str]) -> list[str]:
    """The words of the command line for what a form says: ``--name=value``, checked by kind; empty fields are left out.

    Raises:
        UsageError: there is no such study here, a field is not offered, or does not hold what it takes.
    """
    if study not in OFFERS:
        raise UsageError(f"'{study[:_LONGEST]}' is not started from here; there are {', '.join(OFFERS)}")
    known = {field.name: field for field in OFFERS[study].fields}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(f"'{unknown[0][:_LONGEST]}' is not an option that can be given here; the command line takes all of them")
    words = []
    for name, field in known.items():
        value = given.get(name, "").strip()
        if not value:
            continue
        if field.kind == "flag":
            words.append(f"--{name}")
        else:
            words.append(f"--{name}={_checked(field, value)}")
    return words


def _checked(field: Field, value: str) -> str:
    """The value, if it is what the field takes."""
    if len(value) > _LONGEST or not value.isprintable():
        raise UsageError(f"{field.label}: at most {_LONGEST} characters in one line")
    try:
        match field.kind:
            case "whole":
                _whole(value)
            case "number" | "share":
                _number(value.removesuffix("%") if field.kind == "share" else value)
            case "wholes":
                value = ",".join(_whole(part.strip()) for part in _parts(value))
            case "size":
                parse_bytes(value)
            case "time":
                parse_seconds(value)
            case "choice" if value not in field.choices:
                raise ValueError(f"one of {', '.join(field.choices)}")
            case "words":
                for part in _parts(value):
                    if not part.isascii() or not part.replace(".", "").replace("-", "").isalnum() or part.startswith("-"):
                        raise ValueError("words such as those beside it")
    except UsageError as error:
        raise UsageError(f"{field.label}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{field.label} takes {error}, not '{value}'") from None
    return value


def _parts(value: str) -> list[str]:
    parts = value.split(",")
    if len(parts) > _MOST:
        raise ValueError(f"at most {_MOST} of them")
    return parts


def _whole(value: str) -> str:
    if not value.isascii() or not value.isdecimal() or len(value) > 10:
        raise ValueError("whole numbers")
    return value


def _number(value: str) -> None:
    try:
        found = float(value)
    except ValueError:
        raise ValueError("a number") from None
    if not value.isascii() or not 0 <= found < 1e9:
        raise ValueError("a number")
