"""``pgherd place``: place databases on hosts by their demand over the day, and predict the use of each host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pgherd.cli.output import FiniteRange, answer_console, json_option, print_document, runs_option
from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from pgherd.analysis.demand import Demand
    from pgherd.analysis.host_class import HostClass
    from pgherd.analysis.host_plan import Plan
    from pgherd.model.load import LatencyObjective

SCHEMA = "pgherd/place/2"
_SHOWN = 20
"""Most rows of a table on the terminal."""
_percent = FiniteRange(0, 100, max_open=True)


@click.command("place")
@click.argument("demand", nargs=-1, required=True, metavar="DEMAND.csv|DEMAND.parquet|URL|CAPTURE...")
@click.option("--hosts", type=click.Path(path_type=Path), metavar="FILE.yaml", help="Classes of hosts: capacity, price, count, labels.")
@click.option("--host-run", multiple=True, metavar="[CLASS=]RUN", help="Take capacities of a class from this run (repeatable).")
@click.option("--slo", metavar="pN=TIME", help="Latency objective by which --host-run and --verify classify each host and slot.")
@click.option(
    "--demand-run", multiple=True, metavar="[DATABASE=]RUN", help="Turn rates (tps) into CPU, memory and WAL by this run (repeatable)."
)
@click.option("--prometheus-match", metavar="database=LABEL", help="Label of a database in Prometheus.  [default: database=pod]")
@click.option("--prometheus-select", metavar="MATCHERS", help="Further matchers, such as 'container=\"postgres\"'.")
@click.option("--days", type=click.IntRange(1, 366), metavar="N", help="Days of Prometheus up to now.  [default: 7]")
@click.option("--slots", type=click.IntRange(1, 288), metavar="N", help="Slots of a day of Prometheus.  [default: 24]")
@click.option(
    "--constraints", type=click.Path(path_type=Path), metavar="FILE.csv", help="Constraints of databases: apart, labels, pin, host."
)
@click.option("--minimize", type=click.Choice(["hosts", "price"]), default="hosts", show_default=True, help="What to minimize.")
@click.option(
    "--headroom-percent", type=_percent, default=0.0, show_default=True, metavar="PERCENT", help="Part of each capacity to keep free."
)
@click.option(
    "--risk-percent",
    type=_percent,
    default=0.0,
    show_default=True,
    metavar="PERCENT",
    help="Slots of a host in which CPU, IOPS or WAL may exceed its capacity.",
)
@click.option(
    "--percentile",
    type=FiniteRange(50, 100),
    default=95.0,
    show_default=True,
    metavar="PERCENT",
    help="Percentile of several days to plan for.",
)
@click.option("--lost-hosts", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Hosts that may fail together.")
@click.option("--max-moves", type=click.IntRange(0), metavar="N", help="Start from the present placement, with at most N moves.")
@click.option(
    "--growth-percent", type=FiniteRange(0), default=0.0, show_default=True, metavar="PERCENT", help="Growth of the demand per month."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of the order of placement.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report, JSON, CSV and YAML here. 'pgherd ui' shows plans in the runs directory.",
)
@click.option("--verify", type=click.IntRange(1), metavar="K", help="Run the K hosts with the highest CPU use here, scaled down.")
@click.option("--verify-duration", metavar="TIME", help="Measured time of each slot with --verify.  [default: 6s]")
@click.option("--verify-cores", type=FiniteRange(0, min_open=True), metavar="N", help="Cores that --verify may use here.  [default: all]")
@runs_option
@json_option
def command(
    demand: tuple[str, ...],
    hosts: Path | None,
    host_run: tuple[str, ...],
    slo: str | None,
    demand_run: tuple[str, ...],
    prometheus_match: str | None,
    prometheus_select: str | None,
    days: int | None,
    slots: int | None,
    constraints: Path | None,
    minimize: Literal["hosts", "price"],
    headroom_percent: float,
    risk_percent: float,
    percentile: float,
    lost_hosts: int,
    max_moves: int | None,
    growth_percent: float,
    seed: int,
    output: Path | None,
    verify: int | None,
    verify_duration: str | None,
    verify_cores: float | None,
    runs: Path,
    as_json: bool,
) -> int:
    """Place databases on hosts by their demand over the day: fewest hosts or lowest price, and a prediction for each host.

    The exit code is 1 if a database does not fit or a host is overloaded. With --verify, the JSON document is that of the verification.

    \b
    pgherd place demand.csv --hosts hosts.yaml --output plan
    pgherd place rates.csv --demand-run orders-run --hosts hosts.yaml
    pgherd place orders/ billing/ --demand-run last --hosts hosts.yaml
    pgherd place http://prometheus:9090 --prometheus-match database=pod --hosts hosts.yaml
    pgherd place demand.csv --hosts hosts.yaml --lost-hosts 1 --growth-percent 3
    pgherd place demand.csv --hosts hosts.yaml --constraints now.csv --max-moves 10
    pgherd place demand.csv --hosts hosts.yaml --verify 2
    """
    if hosts is None and not host_run:
        raise UsageError("no host is given; name a file of classes with --hosts, or a density run with --host-run")
    if max_moves is not None and lost_hosts:
        raise UsageError("--lost-hosts adds spare hosts to a new placement, and --max-moves keeps the present hosts; give one of them")
    if max_moves is not None and constraints is None:
        raise UsageError("--max-moves starts from the present placement; give it in the column 'host' of --constraints")
    changes = {name: value for name, value in (("duration", verify_duration), ("host_cores", verify_cores)) if value is not None}
    objective = _objective(slo)
    if objective is not None and not host_run and verify is None:
        raise UsageError(f"--slo {slo}: add --host-run with a density run, whose curve shows where it is missed, or --verify")
    if changes and verify is None:
        raise UsageError("--verify-duration and --verify-cores apply to --verify; give the number of hosts, such as --verify 2")

    from pgherd.analysis.host_plan import PlanOptions, as_document, make_plan
    from pgherd.prepare import fleet_files
    from pgherd.prepare.host_runs import measured_classes

    classes = fleet_files.read_classes(hosts) if hosts is not None else []
    classes = measured_classes(classes, host_run, runs, objective if host_run else None)
    rules = fleet_files.read_rules(constraints) if constraints is not None else []
    asked = {"match": prometheus_match, "select": prometheus_select, "days": days, "slots": slots}
    capacities = {name for host in classes for name in host.capacity}
    asked = {name: value for name, value in asked.items() if value is not None}
    fleet = _read_demand(demand, percentile, demand_run, runs, asked, capacities)
    options = PlanOptions(
        minimize=minimize,
        headroom=headroom_percent / 100,
        risk=risk_percent / 100,
        lost_hosts=lost_hosts,
        max_moves=max_moves,
        growth=growth_percent / 100,
        seed=seed,
    )
    plan = make_plan(fleet, classes, rules, options)
    document = {"schema": SCHEMA, **as_document(plan, fleet)}
    written: list[Path] = []
    if output is not None:
        from pgherd.analysis.database_moves import PlacedFleet
        from pgherd.report.plan_page import write_plan

        written = write_plan(output, plan, PlacedFleet.of(plan, fleet, classes, rules, options), document)
    if verify is not None:
        requested = _requested(plan, fleet, classes, verify) | {"objective": objective}
    if as_json and verify is None:
        print_document({**document, "files": written})
    elif not as_json:
        _show(plan)
        for path in written:
            answer_console().print(str(path), markup=False, soft_wrap=True)
    code = 0 if plan.complete else 1
    if verify is not None:
        from pgherd.cli.run_study import run_study

        code = max(code, run_study("place-verify", {**requested, "seed": seed, **changes}, runs=runs, as_json=as_json))
    return code


def _objective(slo: str | None) -> LatencyObjective | None:
    """Return the latency objective. Raises UsageError if it has another form."""
    if slo is None:
        return None
    from pgherd.study.objectives import parse_objectives

    objectives = parse_objectives([slo])
    if len(objectives) > 1:
        raise UsageError(f"--slo {slo}: give one objective, such as p95=5ms")
    return objectives[0]


def _read_demand(
    demand: Sequence[str], percentile: float, demand_run: Sequence[str], runs: Path, asked: dict[str, Any], capacities: set[str]
) -> Demand:
    """Read the demand of a file, a Prometheus server, or captures.

    ``asked`` are fields of the request of Prometheus. ``capacities`` are the resources of which hosts have a capacity.
    """
    from pgherd.prepare import fleet_files, run_costs

    if len(demand) == 1 and demand[0].startswith(("http://", "https://")):
        from pgherd.prepare.prometheus_demand import PrometheusRequest, read_prometheus

        if demand_run:
            raise UsageError(f"--demand-run {demand_run[0]} turns rates into CPU, and Prometheus has the CPU itself; leave it out")
        return read_prometheus(PrometheusRequest(demand[0], **asked), percentile, capacities)
    if asked:
        raise UsageError(
            "--prometheus-match, --prometheus-select, --days and --slots apply to an address of Prometheus, such as http://HOST:9090"
        )
    paths = [Path(text) for text in demand]
    file = next((path for path in paths if not path.is_dir()), None)
    if len(paths) > 1 and file is not None:
        raise UsageError(f"{file} is no directory of a capture, and only captures may be several; give one file or address")
    costs = run_costs.read_costs(demand_run, runs, capacities)
    if file is None:
        from pgherd.prepare.capture_demand import read_captures

        return read_captures(paths, percentile, costs)
    return fleet_files.read_demand(paths[0], percentile, costs)


def _requested(plan: Plan, fleet: Demand, classes: Sequence[HostClass], count: int) -> dict[str, Any]:
    """Return the options of a verification of the ``count`` hosts with the highest CPU use.

    Raises:
        UsageError: the plan has fewer hosts with databases, or no CPU.
    """
    from pgherd.studies.place_verify.options import MAX_SLOTS, PlannedHost

    if "cpu_cores" not in fleet.resources:
        raise UsageError("--verify needs the CPU of the databases, but the demand has no cpu_cores; add this column")
    cpu = fleet.high[:, fleet.resources.index("cpu_cores")]
    number = min(MAX_SLOTS, len(fleet.slots))
    chosen = [slot * len(fleet.slots) // number for slot in range(number)]
    memory = fleet.high[:, fleet.resources.index("memory_mb")].max(axis=1) if "memory_mb" in fleet.resources else None
    capacity = {one.name: one.capacity["cpu_cores"].value for one in classes}
    members: dict[str, list[int]] = {}
    for index, name in enumerate(fleet.names):
        if name in plan.placement:
            members.setdefault(plan.placement[name], []).append(index)
    if count > len(members):
        raise UsageError(f"--verify {count}: the plan has {len(members)} hosts with databases; verify at most as many")
    hosts = [
        PlannedHost(
            name=str(row["host"]),
            cores=capacity[str(row["class"])],
            databases=tuple(fleet.names[index] for index in members[str(row["host"])]),
            cpu=tuple(tuple(float(cpu[index, slot]) for slot in chosen) for index in members[str(row["host"])]),
            memory=() if memory is None else tuple(float(memory[index]) for index in members[str(row["host"])]),
            latency=tuple(plan.latency[str(row["host"])][slot] for slot in chosen) if row["host"] in plan.latency else (),
        )
        for row in plan.hosts
        if row["host"] in members
    ]
    hosts.sort(key=lambda host: (-max(map(host.demand, range(number))) / host.cores, host.name))
    return {"planned": hosts[:count], "slots": [fleet.slots[slot] for slot in chosen]}


def _show(plan: Plan) -> None:
    from rich.table import Table

    from pgherd.model.analysis import Finding

    console = answer_console()
    console.print(plan.answer, markup=False)
    for text in _comparison(plan):
        console.print(text, markup=False)
    for text in plan.warnings:
        console.print(f"Warning: {text}.", markup=False)
    latency = ("latency",) if plan.latency else ()
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=bool(latency))  # for 80 columns
    for name in ("host", "DBs", "bottleneck", "slot", "use\n%", "interval", *latency, "misses\n%", "full in\nmonths", "unplaced\nif lost"):
        table.add_column(name, justify="left" if name in ("host", "bottleneck", "slot", "latency") else "right", overflow="fold")
    rows = sorted(plan.hosts, key=lambda row: -(row["use"].value or 0) if isinstance(row["use"], Finding) else 0)
    for row in rows[:_SHOWN]:
        use, miss = row["use"], row["miss_probability"]
        assert isinstance(use, Finding) and isinstance(miss, Finding)
        months, lost = row["months_until_full"], row["unplaced_if_lost"]
        spread = "–" if use.low is None or use.high is None else f"{use.low:.0%} to {use.high:.0%}".replace("%", "")
        table.add_row(
            str(row["host"]),
            str(row["databases"]),
            str(row["bottleneck"]) or "spare",
            str(row["slot"]),
            f"{100 * (use.value or 0):.1f}",
            spread,
            *(str(row.get("latency", "–")) for _ in latency),
            "–" if miss.value is None else f"{'≥ ' if miss.note else ''}{100 * miss.value:.1f}",
            "–" if months is None else f"{float(str(months)):.1f}",
            "–" if lost is None else str(lost),
        )
    console.print(table)
    if len(rows) > _SHOWN:
        console.print(f"{len(rows) - _SHOWN} more hosts with lower use: --output writes all of them.", markup=False)
    for heading, found, line in (
        ("Not placed", plan.refusals, "{database}: needs {change}"),
        ("Moves", plan.moves, "{database}: {from} → {to}, {gain}"),
    ):
        if found:
            console.print(f"{heading}:", markup=False)
        for row in found[:_SHOWN]:
            console.print("  " + line.format(**row), markup=False)
        if len(found) > _SHOWN:
            console.print(f"  and {len(found) - _SHOWN} more", markup=False)


def _comparison(plan: Plan) -> list[str]:
    """Return sentences on the bound, on simpler packings, on growth and on purchases."""
    found = plan.findings
    lines = []
    above = found["above_bound"].value
    if above and plan.complete:
        lines.append(f"It is {100 * above:.1f} % above the lower bound.")
    means, over = found["hosts_by_means"].value, found.get("overloaded_by_means")
    if means is not None and over is not None and over.value is not None:
        lines.append(f"Packing by means needs {means:g} hosts, and overloads them in {100 * over.value:.1f} % of their slots.")
    if "slots_within" in found:
        near, beyond = (found[f"slots_{one}"].value or 0.0 for one in ("near", "beyond"))
        lines.append(
            f"The latency objective is missed in {100 * beyond:.1f} % of the host slots, and the curve leaves {100 * near:.1f} % open."
        )
    first = found["months_until_first_full"].value
    if first is not None and math.isfinite(first):
        lines.append(f"The first host is full in {first:.1f} months.")
    best = plan.purchases[0] if plan.purchases else None
    if best is not None and float(str(best["saved"])) > 0:
        lines.append(
            f"10 % more {best['resource']} in every host lowers the bound by {float(str(best['saved'])):,.6g}, more than any other."
        )
    return lines
