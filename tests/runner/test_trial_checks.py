import pytest

from pgherd.model.analysis import Thresholds
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Load, Phase, Script, TimeSlicing
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import Latency, MemoryBalance, OomKill, PhaseResult, TargetResult
from pgherd.model.trial import Trial
from pgherd.runner import trial_checks
from pgherd.runner.memory_checks import ACCOUNTED, NO_OOM_KILL, judge_memory, kill_words
from pgherd.runner.trial_checks import judge
from pgherd.studies.exec.options import ExecOptions, propose

FACTS = HostFacts(hostname="h", kernel="k", cores=4, logical_cpus=4, memory=2**30)
TARGET = "local/c1/pg/bench"


def trial(intents=(), load=None, dsn=None):
    server = Server(bin="/pg/bin", version="18.1", dsn=dsn, databases=(Database(),))
    container = Container(name="c1", runtime="cgroup", vcpus=1, cpu_mode="quota", servers=(server,))
    if dsn is not None:
        container = Container(name="c1", runtime="external", servers=(server,))
    phase = Phase(loads={TARGET: load or Load(threads=1)})
    return Trial(point={}, deployment=Deployment(hosts=(Host(cores=4, containers=(container,)),)), phases=(phase,), validity_checks=intents)


GOOD = {
    "host": {"cpu.user": 0.9, "cpu.system": 0.15, "cpu.steal": 0.01, "cpu.idle": 2.9},
    "container:c1": {"cpu.usage": 0.99},
    f"driver:{TARGET}": {"cpu.usage": 0.2},
    "server:c1/pg": {
        "db.blks_hit": 9999.0,
        "db.blks_read": 1.0,
        "checkpoint.timed": 0.0,
        "checkpoint.requested": 0.0,
        "vacuum.workers": 0.0,
    },
    "disk:sda": {"reads": 1.0},
    "pgherd": {"cpu.usage": 0.01},
}
INTENTS = ("cpu-bound", "cached", "not-client-bound")


def checks_of(
    metrics, *, intents=INTENTS, load=None, overlap=1.0, throughput=1000.0, failed=0, jump=0.0, dsn=None, latency=None, seconds=None
):
    target = TargetResult(
        target=TARGET,
        driver="pgbench",
        transactions=throughput * 10,
        throughput=throughput,
        failed=failed,
        first=0,
        last=11,
        latency=latency or Latency(),
        per_second=[throughput] * 10 if seconds is None else seconds,
    )
    phase = PhaseResult(phase="steady", start=1, end=11, overlap=overlap, targets=[target], metrics=metrics)
    return {v.name: v for v in judge(trial(intents, load, dsn), [phase], FACTS, Thresholds(), jump)}


def changed(entity, **values):
    return GOOD | {entity: GOOD.get(entity, {}) | {name.replace("__", "."): value for name, value in values.items()}}


def test_a_clean_trial_passes_everything():
    assert {name: v.result for name, v in checks_of(GOOD).items()} == dict.fromkeys(
        [
            "cpu-bound",
            "cached",
            "not-client-bound",
            "overlap",
            "on-schedule",
            "no-failed-transactions",
            "steal",
            "background-cpu",
            "no-checkpoint",
            "no-autovacuum",
            "steady",
            "clock-step",
        ],
        "pass",
    )


@pytest.mark.parametrize(
    ("seconds", "result"),
    [
        ([1100.0, 900.0] * 5, "pass"),
        ([1200.0] * 4 + [900.0] * 6, "fail"),  # it starts on another level
        ([1000.0] * 4 + [0.0, 0.0] + [1000.0] * 4, "fail"),
        ([1080.0 - 13 * second for second in range(10)], "fail"),  # it drifts by 10.4 % and ranges less than 20 %
        ([1000.0] * 4, "unknown"),
    ],
)
def test_throughput_that_is_not_steady_is_a_warning(seconds, result):
    verdict = checks_of(GOOD, seconds=seconds)["steady"]
    assert (verdict.result, verdict.severity, verdict.kind) == (result, "warn", "noise")


def test_loads_that_vary_by_chance_or_by_design_are_not_steady_or_not():
    assert checks_of(GOOD, throughput=100.0, seconds=[130.0, 70.0] * 5)["steady"].result == "unknown"
    assert "steady" not in checks_of(GOOD, load=Load(threads=1, rate=500.0), seconds=[600.0] * 3 + [300.0] * 7)


def test_a_period_that_outlasted_its_plan_fails():
    """Ten seconds were planned; a tenth more, and half a second for waking up, are no matter."""
    planned = trial()
    for seconds, result in ((10.0, "pass"), (11.4, "pass"), (11.6, "fail"), (51.0, "fail")):
        target = TargetResult(target=TARGET, driver="pgbench", transactions=1.0, throughput=1.0, first=0, last=60)
        phase = PhaseResult(phase="steady", start=1, end=1 + seconds, overlap=1.0, targets=[target], metrics=GOOD)
        (found,) = [v for v in judge(planned, [phase], FACTS, Thresholds(), 0.0) if v.name == "on-schedule"]
        assert (found.result, found.severity) == (result, "taint"), seconds
    assert found.observed == "51.0 s of 10 s planned"


@pytest.mark.parametrize(
    ("check", "metrics", "more"),
    [
        ("cpu-bound", changed("container:c1", cpu__usage=0.8), {}),
        ("cached", changed("server:c1/pg", db__blks_read=2000.0), {}),
        ("cached", changed("disk:sda", reads=500.0) | {"server:c1/pg": {"db.blks_hit": 99000.0, "db.blks_read": 600.0}}, {}),
        ("not-client-bound", changed(f"driver:{TARGET}", cpu__usage=0.95), {}),
        ("overlap", GOOD, {"overlap": 0.9}),
        ("no-failed-transactions", GOOD, {"failed": 3}),
        ("steal", changed("host", cpu__steal=0.5), {}),
        ("background-cpu", changed("host", cpu__user=2.5), {}),
        ("background-cpu", changed("host", cpu__user=2.5) | {"platform:balloon-manager": {"cpu.usage": 1.6}}, {}),  # a part of pgherd's
        ("no-checkpoint", changed("server:c1/pg", checkpoint__timed=0.1), {}),
        ("no-autovacuum", changed("server:c1/pg", vacuum__workers=0.4), {}),
        ("clock-step", GOOD, {"jump": -0.2}),
    ],
)
def test_what_is_wrong_fails_with_both_values_and_a_reason(check, metrics, more):
    verdict = checks_of(metrics, **more)[check]
    assert verdict.result == "fail"
    assert verdict.observed and verdict.expected and verdict.reason


def steal_of(steal, *, slices=False, driver="pgbench", intents=INTENTS, user=0.9, dsn=None, **limits):
    load = Load(threads=1) if driver == "pgbench" else Load(driver=driver)
    plan = trial(intents, load, dsn)
    if slices:
        turns = TimeSlicing(of={"a": "c1", "b": "c2"}, seconds=0.063, counted=0.05)
        plan = plan.model_copy(update={"phases": (plan.phases[0].model_copy(update={"slices": turns}),)})
    target = TargetResult(target=TARGET, driver=driver, transactions=9000, throughput=900, first=0, last=11)
    metrics = changed("host", cpu__steal=4 * steal, cpu__user=user)
    phase = PhaseResult(phase="steady", start=1, end=11, overlap=1, targets=[target], metrics=metrics)
    return {v.name: v for v in judge(plan, [phase], FACTS, Thresholds(**limits), 0.0)}["steal"]


def test_variants_in_time_slices_bear_more_steal():
    assert steal_of(0.03).taints
    assert steal_of(0.03, slices=True).result == "pass" and "lost the same" in steal_of(0.03, slices=True).expected
    assert steal_of(0.06, slices=True).taints
    assert not steal_of(0.06, slices=True, max_steal=0.1).taints


@pytest.mark.parametrize("more", [{"driver": "fio", "intents": ()}, {"intents": ("io-bound",)}])
def test_steal_is_a_warning_where_devices_are_the_limit(more):
    check = steal_of(0.2, **more)
    assert check.result == "fail" and not check.taints
    assert "I/O is the limit" in check.expected and "host at" in check.observed and check.reason
    full = steal_of(0.2, user=3.1, **more)
    assert full.taints and "warning" not in full.expected
    assert steal_of(0.01, **more).result == "pass"


def test_kernel_work_for_the_servers_devices_is_no_other_program():
    busy = changed("host", cpu__user=2.5)
    disk = {"disk:sda": {"major": 8.0, "minor": 0.0, "reads": 100.0, "writes": 900.0}}
    threads = {"platform:kernel-io": {"cpu.usage": 1.6}}
    assert checks_of(busy | disk)["background-cpu"].result == "fail"
    assert checks_of(busy | disk | threads)["background-cpu"].result == "pass"
    assert checks_of(busy | threads)["background-cpu"].result == "fail", "no device was busy"


def test_a_full_host_is_cpu_bound_though_no_container_is():
    metrics = changed("container:c1", cpu__usage=0.5) | {"host": {"cpu.user": 3.9, "cpu.system": 0.05, "cpu.steal": 0.0}}
    assert checks_of(metrics)["cpu-bound"].result == "pass"


def pages_verdict(settings, transparent, mapped, huge):
    server = Server(bin="/pg/bin", version="18.1", settings=settings, transparent_huge_pages=transparent, databases=(Database(),))
    container = Container(name="c1", servers=(server,))
    wanted = Trial(point={}, deployment=Deployment(hosts=(Host(containers=(container,)),)), phases=(Phase(loads={TARGET: Load()}),))
    seen = {} if mapped is None else {"server:c1/pg": {"pages.size": 4096.0, "pages.mapped": mapped, "pages.huge": huge}}
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    phase = PhaseResult(phase="steady", start=1, end=2, overlap=1, targets=[target], metrics=seen)
    return {v.name: v for v in judge(wanted, [phase], FACTS, Thresholds(), 0.0)}.get("huge-pages")


@pytest.mark.parametrize(
    ("settings", "transparent", "mapped", "huge", "result"),
    [
        ({"huge_pages": "on"}, None, 100.0, 100.0, "pass"),
        ({"huge_pages": "on"}, None, 100.0, 0.0, "fail"),
        ({"huge_pages": "off"}, True, 100.0, 95.0, "pass"),
        ({"huge_pages": "off"}, True, 100.0, 50.0, "fail"),
        ({"huge_pages": "off"}, False, 100.0, 0.0, "pass"),
        ({"huge_pages": "off"}, False, 100.0, 80.0, "fail"),
        ({"huge_pages": "on"}, None, None, None, "unknown"),
        ({"huge_pages": "off"}, False, 0.0, 0.0, "unknown"),
    ],
)
def test_servers_must_lie_on_the_pages_that_were_asked_for(settings, transparent, mapped, huge, result):
    verdict = pages_verdict(settings, transparent, mapped, huge)
    assert verdict.result == result and verdict.kind == "validity" and verdict.severity == "taint"
    assert bool(verdict.reason) == (result != "pass") and verdict.observed and verdict.expected


@pytest.mark.parametrize("settings", [{}, {"huge_pages": "try"}, {"huge_pages": "off"}])
def test_where_nothing_was_asked_for_no_pages_are_judged(settings):
    assert pages_verdict(settings, None, 100.0, 100.0) is None


@pytest.mark.parametrize(
    ("reserved", "result"), [((100.0, 100.0), "pass"), ((100.0, 0.0), "fail"), ((100.0, None), "unknown"), ((0.0, 0.0), None)]
)
@pytest.mark.parametrize("settings", [{}, {"huge_pages": "try"}])
def test_reserved_pages_that_only_some_servers_took_taint(settings, reserved, result):
    pages = {
        f"c{number}": None if size is None else {"pages.size": 4096.0, "pages.mapped": 100.0, "pages.reserved": size, "pages.huge": size}
        for number, size in enumerate(reserved, 1)
    }
    server = Server(bin="/pg/bin", version="18.1", settings=settings, databases=(Database(),))
    host = Host(containers=tuple(Container(name=name, servers=(server,)) for name in pages))
    wanted = Trial(point={}, deployment=Deployment(hosts=(host,)), phases=(Phase(loads={TARGET: Load()}),))
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    seen = {f"server:{name}/pg": reading for name, reading in pages.items() if reading}
    phase = PhaseResult(phase="steady", start=1, end=2, overlap=1, targets=[target], metrics=seen)
    check = {v.name: v for v in judge(wanted, [phase], FACTS, Thresholds(), 0.0)}.get("huge-pages")
    assert (check and check.result) == result
    assert result != "fail" or ("c2/pg" in check.observed and "other servers took the pages first" in check.reason)


@pytest.mark.parametrize("check", ["cpu-bound", "cached", "steal", "background-cpu", "no-checkpoint", "no-autovacuum"])
def test_what_cannot_be_seen_never_passes(check):
    assert checks_of({})[check].result == "unknown"


def test_a_rate_is_met_or_not():
    load = Load(rate=1000)
    assert checks_of(GOOD, intents=("rate-achieved",), load=load, throughput=990)["rate-achieved"].result == "pass"
    assert checks_of(GOOD, intents=("rate-achieved",), load=load, throughput=900)["rate-achieved"].result == "fail"
    # 1000 are due at 100 per second; with random arrivals 900 may be chance (three deviations are 95), 800 may not.
    assert checks_of(GOOD, intents=("rate-achieved",), load=Load(rate=100), throughput=90)["rate-achieved"].result == "pass"
    assert checks_of(GOOD, intents=("rate-achieved",), load=Load(rate=100), throughput=80)["rate-achieved"].result == "fail"
    assert checks_of(GOOD, intents=("rate-achieved",))["rate-achieved"].result == "unknown"


@pytest.mark.parametrize(("achieved", "result"), [(0.66, "fail"), (0.8, "fail"), (0.9, "fail"), (1.0, "pass")])
def test_a_growing_schedule_lag_fails_a_rate_whose_count_may_be_chance(achieved, result):
    """10 transactions a second in a window of 10 s: three deviations of their number are 30 % of it."""
    growth = 1 - achieved
    latency = Latency(mean=5000 * growth + 100, lag_mean=5000 * growth, lag_growth=growth)
    found = checks_of(GOOD, intents=("rate-achieved",), load=Load(clients=2, rate=10), throughput=10 * max(achieved, 0.8), latency=latency)
    assert found["rate-achieved"].result == result


def test_a_short_queue_at_the_end_of_a_window_is_no_growing_lag():
    """Lag grows by 0.4 s in 10 s, which is four transactions of 0.2 s on two clients."""
    latency = Latency(mean=400, lag_mean=200, lag_growth=0.04)
    for rate, result in ((10, "pass"), (1000, "fail")):
        load, service = Load(clients=2, rate=rate), 200 * 10 / rate
        seen = latency.model_copy(update={"mean": 200 + service})
        assert checks_of(GOOD, intents=("rate-achieved",), load=load, throughput=rate, latency=seen)["rate-achieved"].result == result


def test_io_bound_wants_reads_from_the_device():
    read = changed("server:c1/pg", db__blks_read=2000.0) | {"disk:sda": {"reads": 900.0}}
    assert checks_of(read, intents=("io-bound",))["io-bound"].observed == "0.9 device reads per transaction"
    assert checks_of(read, intents=("io-bound",))["io-bound"].result == "pass"
    assert checks_of(GOOD, intents=("io-bound",))["io-bound"].result == "fail"


def test_reads_of_others_pass_io_bound_only_where_missed_blocks_are_not_seen():
    never_reads = changed("server:c1/pg", db__blks_read=0.0) | {"disk:sda": {"reads": 5000.0}}
    found = checks_of(never_reads, intents=("cached", "io-bound"))
    assert (found["io-bound"].result, found["cached"].result) == ("fail", "pass")
    unseen = never_reads | {"server:c1/pg": {}}
    assert checks_of(unseen, intents=("io-bound",))["io-bound"].result == "pass"


def test_a_checkpoint_in_a_writing_load_is_said_with_its_reason():
    load = Load(scripts=(Script(source="builtin:tpcb-like"),))
    verdict = checks_of(changed("server:c1/pg", checkpoint__timed=0.1), load=load)["no-checkpoint"]
    assert verdict.severity == "warn" and "the load writes" in verdict.expected


def test_the_worst_phase_decides():
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    phases = [PhaseResult(phase="a", start=0, end=1, overlap=o, targets=[target], metrics=GOOD) for o in (1.0, 0.5)]
    one = trial()
    two = one.model_copy(update={"phases": one.phases * 2})
    assert next(v for v in judge(two, phases, FACTS, Thresholds(), 0) if v.name == "overlap").result == "fail"


def test_the_phases_that_failed_are_named():
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    phases = [
        PhaseResult(phase=f"w{n}", start=0, end=1, overlap=1, targets=[target], metrics=changed("host", cpu__steal=steal))
        for n, steal in enumerate((0.0, 0.5, 0.0, 1.0))
    ]
    one = trial()
    four = one.model_copy(update={"phases": one.phases * 4})
    found = {v.name: v for v in judge(four, phases, FACTS, Thresholds(), 0)}
    assert found["steal"].failed_phases == ("w1", "w3")
    assert found["steal"].observed == "12.50% (phase w1, the first of 2 such of 4)"
    assert all(v.failed_phases == () and "phase" not in v.observed for v in found.values() if v.result == "pass")
    (alone,) = [v for v in judge(one, phases[1:2], FACTS, Thresholds(), 0) if v.name == "steal"]
    assert (alone.result, alone.failed_phases, alone.observed) == ("fail", (), "12.50%")


def two_containers(metrics, intents=("cpu-bound", "cached")):
    """Verdicts of two loaded containers, c1 and c2."""
    server = Server(bin="/pg/bin", version="18.1", databases=(Database(),))
    both = tuple(Container(name=n, runtime="cgroup", vcpus=1, cpu_mode="quota", servers=(server,)) for n in ("c1", "c2"))
    loads = {TARGET.replace("c1", name): Load(threads=1) for name in ("c1", "c2")}
    deployment = Deployment(hosts=(Host(cores=4, containers=both),))
    one = Trial(point={}, deployment=deployment, phases=(Phase(loads=loads),), validity_checks=intents)
    targets = [TargetResult(target=t, driver="pgbench", transactions=9000, throughput=900, first=0, last=11) for t in loads]
    phase = PhaseResult(phase="a", start=1, end=11, overlap=1, targets=targets, metrics=metrics)
    return {v.name: v for v in judge(one, [phase], FACTS, Thresholds(), 0.0)}


def test_one_that_was_not_seen_passes_no_more_than_all():
    found = two_containers(GOOD)
    assert (found["cpu-bound"].result, found["cached"].result) == ("unknown", "unknown")
    assert found["cpu-bound"].reason.startswith("c2: ") and found["cached"].reason.startswith("c2/pg: ")
    seen = GOOD | {"container:c2": GOOD["container:c1"], "server:c2/pg": GOOD["server:c1/pg"]}
    assert {v.result for v in two_containers(seen).values() if v.kind == "validity"} == {"pass"}
    low = two_containers(changed("container:c1", cpu__usage=0.5) | {"server:c1/pg": {"db.blks_hit": 1.0, "db.blks_read": 9.0}})
    assert {low["cpu-bound"].result, low["cached"].result} == {"fail"}, "what was seen is enough to fail"
    full = GOOD | {"host": {"cpu.user": 3.9, "cpu.system": 0.05, "cpu.steal": 0.0}}
    assert two_containers(full)["cpu-bound"].result == "pass", "a full host needs no container to be seen"


def test_reads_of_somebody_else_do_not_spoil_a_cached_database():
    assert checks_of(changed("disk:sda", reads=5000.0))["cached"].result == "pass"


def test_a_guest_that_uses_its_vcpus_is_cpu_bound_on_a_host_that_is_not_full():
    server = Server(bin="/pg/bin", version="18.1", databases=(Database(),))
    guest = Container(name="c1", runtime="vm", vcpus=1, servers=(server,))
    one = trial(("cpu-bound",)).model_copy(update={"deployment": Deployment(hosts=(Host(containers=(guest,)),))})
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    for used, result in ((1.0, "pass"), (0.5, "fail")):
        metrics = changed("container:c1", cpu__usage=used)
        phase = PhaseResult(phase="a", start=0, end=1, overlap=1, targets=[target], metrics=metrics)
        assert judge(one, [phase], FACTS, Thresholds(), 0)[0].result == result


def test_a_budget_smaller_than_the_host_is_full_when_it_is_used_up():
    server = Server(bin="/pg/bin", version="18.1", databases=(Database(),))
    container = Container(name="c1", runtime="cgroup", vcpus=1, cpu_mode="quota", servers=(server,))
    half = Deployment(hosts=(Host(cores=0.5, containers=(container,)),))
    one = trial(("cpu-bound",)).model_copy(update={"deployment": half})
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    metrics = changed("container:c1", cpu__usage=0.5)
    phase = PhaseResult(phase="a", start=0, end=1, overlap=1, targets=[target], metrics=metrics)
    assert judge(one, [phase], FACTS, Thresholds(), 0)[0].result == "pass"


def test_a_driver_inside_a_small_quota_can_be_the_limit():
    server = Server(bin="/pg/bin", version="18.1", databases=(Database(),))
    container = Container(name="c1", runtime="cgroup", vcpus=0.25, cpu_mode="quota", servers=(server,))
    one = trial(("not-client-bound",))
    one = one.model_copy(update={"deployment": Deployment(hosts=(Host(cores=4, containers=(container,)),))})
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    phase = PhaseResult(phase="a", start=0, end=1, overlap=1, targets=[target], metrics=changed(f"driver:{TARGET}", cpu__usage=0.24))
    assert judge(one, [phase], FACTS, Thresholds(), 0)[0].result == "fail"


@pytest.mark.parametrize(
    ("idle", "result", "words"),
    [(2.9, "pass", ""), (0.05, "fail", "the clients' host is full"), (None, "unknown", "could not be read")],
)
def test_clients_on_a_host_of_their_own_are_the_limit_when_it_is_full(idle, result, words):
    host = {} if idle is None else {"cpu.user": 4 - idle, "cpu.idle": idle, "cpu.online": 4.0}
    part = trial(("not-client-bound",), Load(threads=8, host="clients", client_placement="outside"))
    part = part.model_copy(update={"deployment": Deployment(hosts=(Host(name="clients", cores=4),))})
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=1)
    metrics = {"host": host, f"driver:{TARGET}": {"cpu.usage": 3.9}}  # less than half of what eight threads could get
    found = judge(part, [PhaseResult(phase="a", start=0, end=1, overlap=1, targets=[target], metrics=metrics)], FACTS, Thresholds(), 0)[0]
    assert (found.name, found.result) == ("not-client-bound", result) and words in found.reason
    assert "their host" in found.expected and "their host" in found.observed


@pytest.mark.parametrize(("cores", "result"), [(4.0, "pass"), (2.0, "fail")])
def test_clients_in_a_container_with_a_quota_are_the_limit_when_it_is_used_up(cores, result):
    """Eight servers elsewhere, whose clients use a quarter of a core each: two cores, of 64 that the node shows."""
    facts = FACTS.model_copy(update={"cores": cores, "logical_cpus": 64})
    names = [f"c{number}" for number in range(8)]
    server = Server(bin="/pg/bin", version="18.1", dsn="host=db", databases=(Database(),))
    containers = tuple(Container(name=name, runtime="external", servers=(server,)) for name in names)
    loads = {f"local/{name}/pg/bench": Load(threads=1) for name in names}
    deployment = Deployment(hosts=(Host(cores=4, containers=containers),))
    one = Trial(point={}, deployment=deployment, phases=(Phase(loads=loads),), validity_checks=("not-client-bound",))
    targets = [TargetResult(target=name, driver="pgbench", transactions=1, throughput=1, first=0, last=1) for name in loads]
    metrics = {f"driver:{name}": {"cpu.usage": 0.249} for name in loads}
    phase = PhaseResult(phase="a", start=0, end=1, overlap=1, targets=targets, metrics=metrics)
    found = judge(one, [phase], facts, Thresholds(), 0)[0]
    assert (found.name, found.result) == ("not-client-bound", result) and "pgherd's container" in found.expected


def test_a_device_made_of_others_is_not_counted_again():
    metrics = changed("server:c1/pg", db__blks_read=2000.0) | {"disk:sda": {"reads": 30.0}, "disk:dm-0": {"reads": 30.0}}
    verdict = checks_of(metrics, intents=("io-bound",))["io-bound"]
    assert verdict.result == "fail" and verdict.observed == "0.03 device reads per transaction"


THEIRS = {name: value for name, value in GOOD.items() if name != "container:c1"}


def test_what_is_not_seen_of_somebody_elses_server_is_unknown():
    """Though this host is busy and its disks are read: that says nothing of the server's."""
    busy = THEIRS | {"host": {"cpu.user": 3.9, "cpu.system": 0.05, "cpu.steal": 0.0}, "disk:sda": {"reads": 5000.0}}
    found = checks_of(busy, intents=("cpu-bound", "cached", "io-bound", "not-client-bound"), dsn="host=h")
    results = {name: verdict.result for name, verdict in found.items()}
    unseen = ("cpu-bound", "io-bound", "steal", "background-cpu")
    assert {name for name, result in results.items() if result == "unknown"} == set(unseen)
    assert all("is external" in found[name].reason or "cannot account" in found[name].reason for name in unseen)
    assert results["cached"] == results["not-client-bound"] == results["no-failed-transactions"] == results["no-checkpoint"] == "pass"


def test_what_is_seen_of_it_can_fail():
    assert checks_of(THEIRS | {"host": {**GOOD["host"], "cpu.steal": 0.5}}, dsn="host=h")["steal"].result == "fail", (
        "it held the clients back"
    )
    few_hits = {**GOOD["server:c1/pg"], "db.blks_read": 2000.0}
    assert checks_of(THEIRS | {"server:c1/pg": few_hits}, dsn="host=h")["cached"].result == "fail"
    many_misses = {**GOOD["server:c1/pg"], "db.blks_hit": 99000.0, "db.blks_read": 600.0}
    assert checks_of(THEIRS | {"server:c1/pg": many_misses}, dsn="host=h")["cached"].result == "unknown", (
        "they may have come from its page cache"
    )
    unheard = {name: value for name, value in THEIRS.items() if name != "server:c1/pg"}
    assert {checks_of(unheard, dsn="host=h")[name].result for name in ("cached", "no-checkpoint", "no-autovacuum")} == {"unknown"}


def phases_of(*skews, first=0.0):
    """Two targets' phases; ``first`` is when the later one began, against the measured period's begin at 1."""
    targets = [TargetResult(target=TARGET, driver="pgbench", transactions=9, throughput=9, first=at, last=11) for at in (first, first)]
    return [
        PhaseResult(phase=f"p{n}", start=1, end=11, overlap=1, targets=targets, skew=skew, metrics=GOOD) for n, skew in enumerate(skews)
    ]


def skew_verdict(phases, **limits):
    plan = trial()
    plan = plan.model_copy(update={"phases": plan.phases * len(phases)})
    return {v.name: v for v in judge(plan, phases, FACTS, Thresholds(**limits), 0.0)}.get("switch-skew")


def test_targets_that_switch_together_pass():
    found = skew_verdict(phases_of(0.01, 0.04))
    assert (found.result, found.observed) == ("pass", "40 ms (p1), all before the measured period")


def test_skew_within_the_ramp_is_said_and_taints_nothing():
    found = skew_verdict(phases_of(0.25, 0.04))
    assert (found.result, found.severity) == ("fail", "warn")
    assert "250 ms (p0)" in found.observed and "≤ 100 ms" in found.expected
    assert found.failed_phases == ("p0",)


def test_skew_within_what_is_counted_taints():
    found = skew_verdict(phases_of(0.25, 0.04, first=1.2))
    assert (found.result, found.severity) == ("fail", "taint")
    assert "some of it counted" in found.observed


def test_a_phase_whose_skew_counts_matters_more_than_a_larger_one_that_does_not():
    found = skew_verdict([*phases_of(0.9), *phases_of(0.2, first=1.2)])
    assert (found.observed.split(",")[0], found.severity) == ("200 ms (p0)", "taint")


def test_a_load_that_ends_itself_does_not_switch_with_the_others():
    """It begins in the measured period, and the skew of the others stays before it. Alone, there is nothing to check."""
    single = Phase(name="p", loads={"single": Load(options={"transactions": "1"})})
    late = TargetResult(target="single", driver="pgbench", transactions=1, throughput=1, first=5, last=6)
    plan = trial()
    plan = plan.model_copy(
        update={"phases": tuple(one.model_copy(update={"loads": {**one.loads, **single.loads}}) for one in plan.phases * 2)}
    )
    mixed = [phase.model_copy(update={"targets": [*phase.targets, late]}) for phase in phases_of(0.25, 0.04)]
    assert {v.name: v.severity for v in judge(plan, mixed, FACTS, Thresholds(), 0.0)}["switch-skew"] == "warn"
    alone = [phase.model_copy(update={"targets": [late], "skew": None}) for phase in mixed]
    assert "switch-skew" not in {v.name for v in judge(plan, alone, FACTS, Thresholds(), 0.0)}


def test_the_limit_of_skew_can_be_changed_and_single_phases_have_none():
    assert skew_verdict(phases_of(0.25, 0.04), max_switch_skew=0.3).result == "pass"
    assert skew_verdict(phases_of(0.25)) is None


def test_a_single_target_has_nothing_to_switch_with():
    alone = [phase.model_copy(update={"targets": phase.targets[:1], "skew": None}) for phase in phases_of(None, None)]
    assert (skew_verdict(alone).result, skew_verdict(alone).observed) == ("pass", "a single target")


COMMANDS_FACTS = HostFacts(hostname="h", kernel="6", cores=2, logical_cpus=2, memory=2**30)


def judged(check, *values, options=None):
    hosts = [f"h{number}" for number in range(len(values))]
    loads = {host: Load(driver="command", options=options or {"argv": '["true"]'}) for host in hosts}
    trial = Trial.model_validate(
        {
            "point": {},
            "deployment": {"hosts": [{"name": host} for host in hosts]},
            "phases": [{"loads": loads}],
            "validity_checks": ["exit-code"],
        }
    )
    targets = [
        TargetResult(target=host, driver="command", transactions=1, throughput=1, first=0, last=1, values=own)
        for host, own in zip(hosts, values, strict=True)
    ]
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=targets)
    return getattr(trial_checks, check)(trial, 0, phase, COMMANDS_FACTS, Thresholds())


def test_exit_code_0_passes():
    verdict = judged("exit_code", {"exit_code": 0.0}, {"exit_code": 0.0})
    assert verdict.result == "pass" and verdict.kind == "validity" and verdict.severity == "taint"


@pytest.mark.parametrize(("code", "words"), [(3.0, "exit code 3 on h1"), (-9.0, "signal 9 on h1")])
def test_any_other_fails(code, words):
    verdict = judged("exit_code", {"exit_code": 0.0}, {"exit_code": code})
    assert verdict.result == "fail" and verdict.observed == words and "stderr" in verdict.reason


def test_one_that_was_told_to_end_has_run_until_then():
    assert judged("exit_code", {}).result == "pass"


def test_every_value_has_to_be_there():
    options = {"argv": '["true"]', "value:rate": r"(\d+)", "value:lag": r"(\d+)"}
    assert judged("values_found", {"value:rate": 1.0, "value:lag": 0.0}, options=options).result == "pass"
    verdict = judged("values_found", {"value:rate": 1.0, "value:lag": 0.0}, {"value:rate": 1.0}, options=options)
    assert verdict.result == "fail" and verdict.observed == "not found: lag on h1"


def test_a_command_s_cpu_is_what_its_processes_used():
    def used(driver, sampled, whole):
        target = TargetResult(target="local", driver=driver, transactions=1, throughput=1, first=0, last=1, client_cpu=whole)
        metrics = {} if sampled is None else {"driver:local": {"cpu.usage": sampled}}
        return trial_checks.driver_cpu(target, PhaseResult(phase="p", start=0, end=1, overlap=1, targets=[target], metrics=metrics))

    assert used("command", 0.01, 1.5) == 1.5 and used("command", 0.01, None) == 0.01 and used("command", None, None) == 0
    assert used("fio", 0.25, 1.5) == 0.25, "a driver that is sampled is taken as it was in the window"


def test_how_long_it_lasts_is_judged_of_no_open_ended_trial():
    target = TargetResult(target="local", driver="command", transactions=1, throughput=1, first=0, last=1, values={"exit_code": 0.0})
    phase = PhaseResult(phase="command", start=0, end=1, overlap=0.4, targets=[target])
    checks = {}
    for seconds in (None, 60.0):
        trial = propose(ExecOptions(command=("true",), host_cores=2, duration=seconds), []).trials[0]
        checks[seconds] = {verdict.name for verdict in trial_checks.judge(trial, [phase], COMMANDS_FACTS, Thresholds(), 0.0)}
    assert checks[60.0] - checks[None] == {"overlap", "on-schedule"} and "exit-code" in checks[None]


MB = 2**20


def limited_trial(runtime="cgroup"):
    containers = (Container(name="a", runtime=runtime),)
    return Trial(point={"x": 1}, deployment=Deployment(hosts=(Host(containers=containers),)), phases=(Phase(),))


def phase(worst):
    account = None
    if worst is not None:
        account = MemoryBalance(seconds=9, worst=worst, worst_at=5.0, budget=100 * MB, containers=80 * MB, unallocated=20 * MB)
    return PhaseResult(phase="p", start=0, end=10, overlap=1, targets=[], memory=account)


def memory_verdicts(*args):
    return {verdict.name: verdict for verdict in judge_memory(*args, Thresholds())}


def test_the_worst_second_of_all_phases_decides():
    found = memory_verdicts(limited_trial(), [phase(0.001), phase(-0.015), phase(None)], ())
    assert found[ACCOUNTED].result == "pass"
    assert "1.50% too much in the worst of 9 seconds: containers 80 MB + unallocated 20 MB of 100 MB" in found[ACCOUNTED].observed
    failed = memory_verdicts(limited_trial(), [phase(0.001), phase(0.03)], ())[ACCOUNTED]
    assert (failed.result, failed.severity) == ("fail", "warn")
    assert "3.00% missing" in failed.observed and failed.reason


def test_the_threshold_can_be_changed():
    (verdict, _) = judge_memory(limited_trial(), [phase(0.03)], (), Thresholds(max_unaccounted_memory=0.05))
    assert verdict.result == "pass" and "5.0%" in verdict.expected


def test_nothing_is_said_where_nothing_counts():
    assert memory_verdicts(limited_trial("process"), [phase(None)], ()) == {}
    assert set(memory_verdicts(limited_trial(), [phase(None)], ())) == {NO_OOM_KILL}
    assert memory_verdicts(limited_trial("vm"), [phase(0.03)], ())[ACCOUNTED].result == "fail", "guests run in control groups"
    assert memory_verdicts(limited_trial(), [], ()) == {}, "it ended for another reason"


def test_an_oom_kill_fails_and_says_who():
    kills = (OomKill(container="a", processes=2, time=3.0, names=("postgres (12)",), limit="run"),)
    found = memory_verdicts(limited_trial(), [], kills)[NO_OOM_KILL]
    assert (found.result, found.severity) == ("fail", "taint")
    assert found.observed == "a: postgres (12) and 1 more killed, at the limit of all containers together"
    assert memory_verdicts(limited_trial(), [phase(0.0)], ())[NO_OOM_KILL].result == "pass"


def test_words_of_a_kill_that_the_log_does_not_tell_of():
    assert kill_words(OomKill(container="a", processes=1, time=3.0)) == "a: 1 process killed"
    assert kill_words(OomKill(container="a", processes=2, time=3.0, limit="container")) == "a: 2 processes killed, at the container's limit"


@pytest.mark.parametrize(("loaded", "result"), [(("a", "c"), "fail"), (("a", "b"), "pass"), (("a", "b", "c"), "pass")])
def test_loaded_containers_do_not_share_a_cpu_while_another_is_idle(loaded, result):
    """Three containers on two CPUs: a and c on the first one, b on the second."""
    containers = tuple(
        Container(
            name=name,
            vcpus=1,
            cpu_mode="cpuset",
            servers=(Server(name="pg", bin="/b", version="18", databases=(Database(name="bench"),)),),
        )
        for name in "abc"
    )
    loads = {f"local/{name}/pg/bench": Load() for name in loaded}
    trial = Trial(
        point={"databases": len(loaded)},
        deployment=Deployment(hosts=(Host(name="local", cores=2, containers=containers),)),
        phases=(Phase(name="steady", seconds=5, loads=loads),),
    )
    phase = PhaseResult(phase="steady", start=0, end=5, overlap=1, targets=[])
    (check,) = [check for check in judge(trial, [phase], FACTS, Thresholds(), 0.0) if check.name == "shared-cpus"]
    assert check.result == result and check.severity == "taint"
    if result == "fail":
        assert check.observed == "a (and 1 more) on the same CPU, 1 of 2 CPUs without a loaded container"


SEEN = THEIRS | {"container:c1": {"cpu.usage": 0.99, "cpu.limit": 1.0, "memory.usage": 1e8}}


def test_the_cgroup_of_somebody_elses_server_is_judged_like_a_container():
    found = checks_of(SEEN, intents=("cpu-bound", "cached", "io-bound"), dsn="host=h", load=Load(threads=1, client_placement="outside"))
    assert {name: found[name].result for name in ("cpu-bound", "cached", "io-bound", "background-cpu", "steal")} == {
        "cpu-bound": "pass",
        "cached": "pass",
        "io-bound": "fail",
        "background-cpu": "pass",
        "steal": "pass",
    }
    idle = checks_of(SEEN | {"container:c1": {"cpu.usage": 0.4, "cpu.limit": 1.0}}, intents=("cpu-bound",), dsn="host=h")["cpu-bound"]
    assert idle.result == "fail" and idle.observed.startswith("containers at 40.0%")
    unlimited = checks_of(SEEN | {"container:c1": {"cpu.usage": 0.9}}, intents=("cpu-bound",), dsn="host=h")["cpu-bound"]
    assert unlimited.result == "fail" and unlimited.observed.startswith("host at"), "without a limit, only the host can be full"


def test_oom_kills_in_the_cgroup_of_somebody_elses_server_are_judged():
    phase = PhaseResult(phase="steady", start=1, end=11, overlap=1, targets=[], metrics=SEEN)
    kill = OomKill(container="c1", processes=1, time=5.0)
    assert [check.result for check in judge_memory(trial(dsn="host=h"), [phase], [kill], Thresholds())] == ["fail"]
    assert [check.result for check in judge_memory(trial(dsn="host=h"), [phase], [], Thresholds())] == ["pass"]
    unseen = phase.model_copy(update={"metrics": THEIRS})
    assert judge_memory(trial(dsn="host=h"), [unseen], [], Thresholds()) == []


NODE, CADVISOR = (
    ("node_cpu_seconds_total", "node_disk_reads_completed_total"),
    ("container_cpu_usage_seconds_total", "container_oom_events_total"),
)
REMOTE = THEIRS | {
    "server-host:c1": {"cpu.online": 2.0, "cpu.idle": 0.02, "cpu.user": 1.8, "cpu.system": 0.15, "cpu.iowait": 0.01, "cpu.steal": 0.02},
    "container:c1": {"cpu.usage": 1.9, "memory.usage": 1e9, "memory.oom_kills": 0.0},
    "server-disk:c1/sda": {"reads": 5000.0},
}


def seen_by_prometheus(container, series, sparse=()):
    return PrometheusView(
        container=container, url="http://p:9090", match='instance=~"db1"', step=5.0, gaps=0, longest_gap=None, series=list(series),
        sparse=list(sparse), missing=[], clock_ahead=0.0, seconds=0.01,
    )  # fmt: skip


def from_prometheus(metrics, series, *, sparse=(), intents=("cpu-bound", "cached", "io-bound")):
    view = seen_by_prometheus("c1", series, sparse)
    target = TargetResult(target=TARGET, driver="pgbench", transactions=10000, throughput=1000, failed=0, first=0, last=11)
    phase = PhaseResult(phase="steady", start=1, end=11, overlap=1, targets=[target], metrics=metrics, prometheus=[view])
    external = trial(intents, Load(threads=1, client_placement="outside"), "host=db1")
    return {v.name: v for v in [*judge(external, [phase], FACTS, Thresholds(), 0), *judge_memory(external, [phase], [], Thresholds())]}


def test_the_host_of_somebody_elses_server_is_judged_by_prometheus_and_not_by_this_host():
    found = from_prometheus(REMOTE, NODE + CADVISOR)
    results = {name: found[name].result for name in ("cpu-bound", "cached", "io-bound", "background-cpu", "steal", "no-oom-kill")}
    assert results == {
        "cpu-bound": "pass",
        "cached": "pass",
        "io-bound": "fail",
        "background-cpu": "pass",
        "steal": "pass",
        "no-oom-kill": "pass",
    }
    missing = REMOTE | {"server:c1/pg": REMOTE["server:c1/pg"] | {"db.blks_read": 9000.0}}
    assert from_prometheus(missing, NODE + CADVISOR)["io-bound"].observed == "5 device reads per transaction"
    busy = REMOTE | {"container:c1": {"cpu.usage": 1.0, "memory.usage": 1e9, "memory.oom_kills": 0.1}}
    found = from_prometheus(busy, NODE + CADVISOR)
    assert found["background-cpu"].result == "fail" and found["background-cpu"].observed == "47.50%"
    assert found["no-oom-kill"].result == "fail" and found["no-oom-kill"].observed == "c1: 1 process killed"


@pytest.mark.parametrize(
    ("kills", "result", "observed"),
    [(0.0, "pass", "none"), (0.4, "fail", "c1: 1 process killed"), (2.4, "fail", "c1: 2 processes killed")],
)
def test_an_oom_kill_at_the_border_of_the_window_counts(kills, result, observed):
    """Prometheus' samples are some seconds apart, and the counter is interpolated between them."""
    container = REMOTE["container:c1"] | {"memory.oom_kills": kills / 10}
    found = from_prometheus(REMOTE | {"container:c1": container}, NODE + CADVISOR)["no-oom-kill"]
    assert (found.result, found.observed) == (result, observed)


def test_kills_of_one_server_count_though_another_has_no_series_for_them():
    def checked(kills):
        metrics = {"container:c1": {"memory.usage": 1e9, "memory.oom_kills": kills / 10}}
        views = [seen_by_prometheus("c0", ()), seen_by_prometheus("c1", CADVISOR)]
        phase = PhaseResult(phase="steady", start=1, end=11, overlap=1, targets=[], metrics=metrics, prometheus=views)
        (check,) = judge_memory(trial(dsn="host=db1"), [phase], [], Thresholds())
        return check

    assert (checked(2.0).result, checked(2.0).observed) == ("fail", "c1: 2 processes killed")
    assert checked(0.0).result == "unknown" and "of container c0 in the window" in checked(0.0).reason


def test_a_missing_series_makes_a_check_unknown_by_its_name():
    found = from_prometheus({name: value for name, value in REMOTE.items() if name != "container:c1"}, NODE)
    assert (
        found["background-cpu"].result == "unknown"
        and "no series container_cpu_usage_seconds_total for instance=~" in found["background-cpu"].reason
    )
    assert found["cpu-bound"].result == "pass", "of the host alone"
    found = from_prometheus(THEIRS, (), sparse=NODE)
    assert found["cpu-bound"].result == found["io-bound"].result == found["steal"].result == "unknown"
    assert found["cpu-bound"].reason.startswith("Prometheus has fewer than two samples of node_cpu_seconds_total in the window (step 5 s)")
