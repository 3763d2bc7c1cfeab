"""What the dashboards share: how a metric is asked for, and the rows that several of them have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from panels import Panel, Query, Row

RUN = 'run="$run"'
HOST = f'{RUN}, host=~"$host"'
CONTAINER = f'{HOST}, container=~"$container"'
DEVICE = f'{HOST}, device=~"$device"'
CONTAINERS = ("container", "Container", 'label_values(pgherd_driver_transactions_total{run="$run"}, container)')
DEVICES = ("device", "Device", 'label_values(pgherd_disk_writes_total{run="$run"}, device)')


def rate(name: str, which: str = HOST) -> str:
    """Increase per second of a counter."""
    return f"rate({name}{{{which}}}[$window])"


def last(name: str, which: str = HOST) -> str:
    """A gauge's last reading, if it is of now."""
    return f"last_over_time({name}{{{which}}}[$window])"


def ratio(above: str, below: str) -> str:
    """A quotient, where there is anything below."""
    return f"{above} / ({below} > 0)"


@dataclass(frozen=True)
class Subject:
    """What a panel has a series for each of: which series of a metric these are, and how they are called."""

    which: str
    legend: str = ""


WHOLE = Subject(HOST)
HOSTS = Subject(HOST, "{{host}}")
EACH_CONTAINER = Subject(CONTAINER, "{{container}}")
EACH_SERVER = Subject(CONTAINER, "{{container}}/{{server}}")
EACH_TARGET = Subject(CONTAINER, "{{target}}")
EACH_DEVICE = Subject(DEVICE, "{{device}}")
Ask = Callable[[str, str], str]
"""``rate``, ``last``, ``increase``."""


def increase(name: str, which: str = HOST) -> str:
    """By how much a counter grew within the window."""
    return f"increase({name}{{{which}}}[$window])"


def kinds(ask: Ask, subject: Subject, names: Mapping[str, str]) -> tuple[Query, ...]:
    """Several metrics of each subject, each with the word that tells it from the others."""
    return tuple(Query(ask(name, subject.which), ", ".join(filter(None, (subject.legend, word)))) for name, word in names.items())


def each(title: str, ask: Ask, subject: Subject, name: str, unit: str, says: str = "", *, stacked: bool = False) -> Panel:
    """A panel of one metric, a series for each subject."""
    return Panel(title, kinds(ask, subject, {name: ""}), unit, says, stacked=stacked)


P99 = f'{RUN}, statistic="p99"'


def of_trials(name: str, which: str = RUN) -> str:
    """What was last told in the time shown: of each trial that ended in it."""
    return f"last_over_time({name}{{{which}}}[$__range])"


def now() -> Row:
    """What runs; at the head of each study's dashboard."""
    return Row(
        "Now",
        (
            Panel(
                "Throughput",
                (Query(f"sum({rate('pgherd_driver_transactions_total')})"),),
                "suffix: tps",
                "All databases, by their drivers' own progress.",
                "stat",
                width=6,
            ),
            Panel("Trials left", (Query(last("pgherd_trials_left", RUN)),), "none", "Of those proposed so far.", "stat", width=6),
            Panel(
                "Trials finished",
                (Query(f"sum by (result) ({last('pgherd_trials_finished_total', RUN)})", "{{result}}"),),
                "none",
                "Clean, tainted (run again), failed.",
                "stat",
                width=6,
            ),
            Panel(
                "pgherd's own CPU",
                (Query(f"sum({rate('pgherd_own_cpu_usage_seconds_total')})"),),
                "percentunit",
                "Of one core; answering scrapes included.",
                "stat",
                width=6,
            ),
        ),
    )


def load() -> tuple[Panel, ...]:
    """Throughput and latency by database."""
    return (
        each(
            "Throughput by database",
            rate,
            EACH_TARGET,
            "pgherd_driver_transactions_total",
            "suffix: tps",
            "By the drivers' own progress, once a second; ramps included.",
            stacked=True,
        ),
        each(
            "Latency by database",
            last,
            EACH_TARGET,
            "pgherd_driver_latency_seconds",
            "s",
            "Mean over the last second. Under a rate it counts from the scheduled start.",
        ),
    )


def finished() -> Row:
    """What the finished trials came to."""
    total = f"sum by (trial, number, phase) ({of_trials('pgherd_result_transactions')})"
    window = f"max by (trial, number, phase) ({of_trials('pgherd_result_window_seconds')})"
    p99 = f"max by (trial, number, phase) ({of_trials('pgherd_result_latency_seconds', P99)})"
    return Row(
        "Finished trials",
        (
            Panel(
                "Throughput in the common window",
                (Query(f"{total} / {window}"),),
                "suffix: tps",
                "Sum over the databases, of the trials that ended in the time shown.",
                "table",
                columns=("trial", "number", "phase"),
                value="throughput",
            ),
            Panel(
                "Slowest database's 99th percentile",
                (Query(p99),),
                "s",
                "Only where enough transactions were logged for one.",
                "table",
                columns=("trial", "number", "phase"),
                value="p99",
            ),
        ),
    )


def host_cpu(*, width: int = 12) -> Panel:
    """Where the host's CPU time goes."""
    return Panel(
        "Host CPU",
        (Query(f"sum by (mode) ({rate('pgherd_host_cpu_seconds_total')})", "{{mode}}"),),
        "suffix: cores",
        "All CPUs, by mode; idle included, so that the stack's height is what there is.",
        stacked=True,
        width=width,
    )


def container_cpu() -> Panel:
    """What containers use of it."""
    return each("CPU by container", rate, EACH_CONTAINER, "pgherd_container_cpu_usage_seconds_total", "suffix: cores", stacked=True)


def container_memory(says: str = "") -> Panel:
    """What is charged to containers."""
    return each("Memory by container", last, EACH_CONTAINER, "pgherd_container_memory_usage_bytes", "bytes", says, stacked=True)
