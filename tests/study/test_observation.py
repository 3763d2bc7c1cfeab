"""One trial's numbers, and where its CPU went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pgherd.model.deployment import Deployment
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study import observation
from pgherd.study.observation import device_sum, hosts_of_servers, main_wait, observe

Build = Callable[..., DensityOptions]


def trial(options: DensityOptions, host: Any, databases: int) -> TrialResult:
    return host.run(next(trial for trial in planned(options) if trial.point["databases"] == databases))


@pytest.mark.parametrize("location", ["inside", "outside"])
@pytest.mark.parametrize("databases", [1, 6, 10])
def test_the_parts_make_up_the_host(options: Build, simulate: Any, location: str, databases: int) -> None:
    study_options = options(client_placement=location)
    observation = observe(
        study_options, trial(study_options, simulate(study_options, overhead=0.2 if location == "inside" else 0.9), databases)
    )
    assert observation is not None
    cpu = observation.cpu
    parts = [cpu.databases, cpu.clients, cpu.pgherd, cpu.platform, cpu.iowait, cpu.idle, cpu.steal]
    assert None not in parts
    assert sum(parts) == pytest.approx(cpu.total)


def test_clients_on_a_host_of_their_own_take_nothing_from_the_servers(options: Build, simulate: Any) -> None:
    chosen = options(client_placement="outside")
    result = trial(chosen, simulate(chosen, overhead=0.9), 2)
    observation = observe(chosen, result)
    (plan,) = result.trial.phases
    loads = {target: load.model_copy(update={"host": "c"}) for target, load in plan.loads.items()}
    moved = result.trial.model_copy(update={"phases": (plan.model_copy(update={"loads": loads}),)})
    apart = observe(chosen, result.model_copy(update={"trial": moved}))
    assert observation is not None and apart is not None and observation.cpu.clients and apart.cpu.clients == 0
    assert apart.cpu.databases == observation.cpu.databases
    assert apart.cpu.platform == pytest.approx((observation.cpu.platform or 0) + observation.cpu.clients), (
        "their CPU is not looked for here"
    )


def test_the_platform_is_what_is_outside(options: Build, simulate: Any) -> None:
    study_options = options()
    observation = observe(study_options, trial(study_options, simulate(study_options, overhead=0.2), 6))
    assert observation.cpu.platform == pytest.approx(0.2)
    assert observation.cpu.named == {"vm": 0.1}
    assert observation.cpu_per_tx == pytest.approx(1000 * 1.5 / observation.throughput)
    assert observation.given == pytest.approx(1.0)


def test_hypervisors_and_the_balloon_manager_are_the_platforms(options: Build, simulate: Any) -> None:
    """E2: what QEMU uses beside its vCPUs is not the databases', and the manager is needed whoever measures."""
    study_options = options(client_placement="outside")
    result = trial(study_options, simulate(study_options, overhead=0.9), 6)
    before = observe(study_options, result)
    metrics = result.phases[0].metrics
    metrics["guest:db01"] = {"emulated": 0.0, "qemu.cpu": 0.25, "qemu.cpu_guest": 0.2}
    metrics["guest:db02"] = {"emulated": 0.0, "qemu.cpu": 0.25, "qemu.cpu_guest": 0.22}
    metrics["platform:balloon-manager"] = {"cpu.usage": 0.001}
    after = observe(study_options, result)
    assert before is not None and after is not None
    assert after.cpu.named == {**before.cpu.named, "QEMU": pytest.approx(0.08), "balloon-manager": 0.001}
    assert after.cpu.platform == pytest.approx(before.cpu.platform + 0.081)
    assert after.cpu.databases == pytest.approx(before.cpu.databases - 0.08)
    assert after.cpu.pgherd == pytest.approx(before.cpu.pgherd - 0.001)
    assert after.cpu.loaded == before.cpu.loaded, "what the containers were given and used is as it was"
    metrics["guest:db01"]["emulated"] = 1.0
    emulated = observe(study_options, result)
    assert emulated is not None and "QEMU" not in emulated.cpu.named


def test_time_that_the_ticks_missed_is_the_platforms(options: Build, simulate: Any) -> None:
    """As measured: 4 databases used 0.998 cores by their groups' clocks, the host's ticks saw 0.90 in use, and 0.945 idle of 2."""
    study_options = options()
    result = trial(study_options, simulate(study_options), 5)
    host = result.phases[0].metrics["host"]
    host.update({"cpu.user": 0.6, "cpu.system": 0.5, "cpu.softirq": 0.0, "cpu.idle": 0.65, "cpu.steal": 0.01, "cpu.online": 2.0})
    observation = observe(study_options, result)
    assert observation.cpu.platform == pytest.approx(2 - 0.66 - 1.25 - 0.01)
    assert observation.cpu.total == pytest.approx(2)


@pytest.mark.parametrize(("databases", "limit"), [(1, "cpu-quota"), (6, "cpu-quota"), (8, "host-cpu"), (10, "host-cpu")])
def test_what_limits(options: Build, simulate: Any, databases: int, limit: str) -> None:
    study_options = options()
    assert observe(study_options, trial(study_options, simulate(study_options), databases)).bottleneck == limit


def test_whole_cpus_are_no_quota(options: Build, simulate: Any) -> None:
    study_options = options(cpu_mode="cpuset", vcpus=1, host_cores=8)
    assert observe(study_options, trial(study_options, simulate(study_options), 3)).bottleneck == "cpuset"


def test_without_a_quota_a_free_host_has_no_known_limit(options: Build, simulate: Any) -> None:
    study_options = options(cpu_mode="none")
    assert observe(study_options, trial(study_options, simulate(study_options), 3)).bottleneck == "unknown"


def test_rate_clients_and_storage(options: Build, simulate: Any) -> None:
    study_options = options(rate=1000)
    assert observe(study_options, trial(study_options, simulate(study_options), 3)).bottleneck == "rate-limit"
    study_options = options(cpu_mode="none")
    starved = trial(options(rate=1000), simulate(options(rate=1000)), 3)
    verdicts = [v.model_copy(update={"result": "fail"}) if v.name == "rate-achieved" else v for v in starved.checks]
    assert observe(options(rate=1000), starved.model_copy(update={"checks": verdicts})).bottleneck != "rate-limit"
    held = trial(study_options, simulate(study_options, taint=lambda t: "not-client-bound"), 3)
    assert observe(study_options, held).bottleneck == "client-cpu"
    waiting = trial(study_options, simulate(study_options), 3)
    host = waiting.phases[0].metrics["host"]
    host["cpu.iowait"], host["cpu.idle"] = 0.5, host["cpu.idle"] - 0.5
    assert observe(study_options, waiting).bottleneck == "storage"


def test_nothing_seen_is_none_not_zero(options: Build, simulate: Any) -> None:
    study_options = options()
    observation = observe(study_options, trial(study_options, simulate(study_options, metrics=False), 3))
    assert observation.throughput > 0
    for value in (
        observation.cpu_per_tx,
        observation.given,
        observation.cpu.loaded,
        observation.cpu.platform,
        observation.cpu.idle,
        observation.cpu.pgherd,
    ):
        assert value is None
    assert observation.bottleneck == "unknown"


def test_one_container_unseen_hides_the_sum(options: Build, simulate: Any) -> None:
    study_options = options()
    result = trial(study_options, simulate(study_options), 3)
    container = next(entity for entity in result.phases[0].metrics if entity.startswith("container:"))
    del result.phases[0].metrics[container]
    observation = observe(study_options, result)
    assert observation.cpu.loaded is None
    assert observation.cpu.platform is None
    assert observation.cpu.idle is not None


def test_the_drivers_own_report_stands_in_for_an_unseen_driver(options: Build, simulate: Any) -> None:
    study_options = options()
    result = trial(study_options, simulate(study_options), 1)
    (phase,) = result.phases
    observed = phase.metrics.pop(f"driver:{phase.targets[0].target}")["cpu.usage"]
    assert observe(study_options, result).cpu.clients is None
    target = phase.targets[0].model_copy(update={"client_cpu": observed})
    again = result.model_copy(update={"phases": [phase.model_copy(update={"targets": [target]})]})
    assert observe(study_options, again).cpu.clients == pytest.approx(observed)


def test_a_failed_trial_has_no_numbers(options: Build, simulate: Any) -> None:
    study_options = options()
    assert observe(study_options, trial(study_options, simulate(study_options, fail=lambda t: "died"), 1)) is None


def test_percentiles_need_every_database(options: Build, simulate: Any) -> None:
    study_options = options()
    result = trial(study_options, simulate(study_options), 3)
    assert observe(study_options, result).p95 == 6
    (phase,) = result.phases
    phase.targets[0] = phase.targets[0].model_copy(update={"latency": phase.targets[0].latency.model_copy(update={"p95": None})})
    assert observe(study_options, result).p95 is None


def test_devices_that_pass_on_what_they_are_asked_are_not_counted_twice(options: Build, simulate: Any) -> None:
    study_options = options()
    (phase,) = trial(study_options, simulate(study_options), 1).phases

    def seen(*names: str) -> float | None:
        plain = {entity: values for entity, values in phase.metrics.items() if not entity.startswith("disk:")}
        metrics = {**plain, **{f"disk:{name}": {"reads": 1.0, "writes": 2.0} for name in names}, "disk:odd": {"reads": 8.0}}
        return device_sum(phase.model_copy(update={"metrics": metrics}), "reads", "writes")

    assert seen("vda", "vdb", "dm-0", "loop3") == 6
    assert seen("n1/vda", "n1/dm-0", "n2/vda", "n2/md127") == 6, "of several hosts"
    assert seen("dm-0", "dm-1") == 6, "there are no others"
    assert seen() is None


def guest(used: float = 2.5, vcpus: float = 2.0, emulated: float = 0.0) -> dict[str, float]:
    return {"qemu.cpu": used, "qemu.cpu_guest": vcpus, "emulated": emulated}


def test_what_qemu_uses_beside_its_vcpus_is_its_own() -> None:
    assert observation.hypervisor_cpu({"guest:a": guest(), "guest:b": guest(1.0, 0.75), "host": {}}) == pytest.approx(0.75)
    assert observation.hypervisor_cpu({"guest:a": guest(1.0, 1.01)}) == 0, "two counters that disagree by a tick"


def test_nothing_is_said_of_emulated_or_unseen_ones() -> None:
    assert observation.hypervisor_cpu({"container:a": {}}) is None
    assert observation.hypervisor_cpu({"guest:a": guest(), "guest:b": guest(emulated=1.0)}) is None
    assert observation.hypervisor_cpu({"guest:a": {"qemu.cpu": 1.0, "emulated": 0.0}}) is None
    assert observation.hypervisor_cpu({"guest:a": {"qemu.cpu": 1.0, "qemu.cpu_guest": 1.0}}) is None


def test_kernel_work_for_io_is_a_named_part_of_the_platform(options: Build, simulate: Any) -> None:
    given = options()
    result = trial(given, simulate(given, overhead=0.4), 2)
    (phase,) = result.phases
    io = {"platform:kernel-io": {"cpu.usage": 0.3}, "disk:sda": {"major": 8.0, "minor": 0.0, "reads": 1.0, "writes": 1.0}}
    seen = observe(given, result.model_copy(update={"phases": [phase.model_copy(update={"metrics": phase.metrics | io})]}))
    plain = observe(given, result)
    assert seen is not None and plain is not None
    assert seen.cpu.named == {**plain.cpu.named, "kernel-io": pytest.approx(0.3)}
    assert seen.cpu.platform == pytest.approx(plain.cpu.platform)


def listed(options: Build, simulate: Any, metrics: dict[str, dict[str, float]], views: Sequence[tuple[str, str]], **more: Any) -> Any:
    """Return what is observed of three listed servers: ``metrics`` besides those of this host, and (container, host) by Prometheus."""
    fleet = tuple({"name": f"s{n}", "dsn": f"host=s{n}", "version": "18.1", "host": "h"} for n in range(3))
    given = options(fleet=fleet, databases=(1, 3), cpu_mode="none", runtime="external")
    result = trial(given, simulate(given, metrics=False), 3)
    (phase,) = result.phases
    seen = [
        PrometheusView(container=name, url="http://p", match=host, step=1, gaps=0, longest_gap=None, series=[], sparse=[], missing=[],
                       clock_ahead=0, seconds=0) for name, host in views
    ]  # fmt: skip
    phase = phase.model_copy(update={"metrics": metrics, "prometheus": seen, **more})
    return observe(given, result.model_copy(update={"phases": [phase]})), result.trial, phase


FULL = {"cpu.user": 4.0, "cpu.online": 4.0, "cpu.idle": 0.0, "cpu.iowait": 0.0, "cpu.steal": 0.0}
IDLE = FULL | {"cpu.user": 1.0, "cpu.idle": 3.0}


def test_this_hosts_cpu_says_nothing_of_listed_servers_whose_own_is_unknown(options: Build, simulate: Any) -> None:
    assert listed(options, simulate, {"host": FULL}, [])[0].bottleneck == "unknown"
    waits = {"s0/pg": {"lock": [3.0], "cpu": [1.0]}}
    assert listed(options, simulate, {"host": FULL}, [], waits=waits)[0].bottleneck == "lock-waits"
    here = {f"container:s{n}": {"cpu.usage": 1.3} for n in range(3)}
    assert listed(options, simulate, {"host": FULL, **here}, [], waits=waits)[0].bottleneck == "host-cpu", "their cgroups are here"


def test_this_hosts_cpu_and_scheduler_are_not_those_of_servers_elsewhere(options: Build, simulate: Any) -> None:
    counted = {"host": FULL | {"context_switches": 900.0, "procs_running": 3.0}}
    unseen = listed(options, simulate, counted, [])[0]
    assert (unseen.scheduler.switches_per_tx, unseen.scheduler.runnable, unseen.cpu.idle, unseen.cpu.total) == (None,) * 4
    here = {f"container:s{n}": {"cpu.usage": 1.3} for n in range(3)}
    seen = listed(options, simulate, counted | here, [])[0]
    assert seen.scheduler.switches_per_tx == pytest.approx(900 / seen.throughput) and seen.scheduler.runnable == 3
    assert (seen.cpu.idle, seen.cpu.total) == (0, 4), "their cgroups are here"
    elsewhere = listed(options, simulate, counted | {"server-host:s0": IDLE}, [(f"s{n}", "h1") for n in range(3)])[0]
    assert elsewhere.scheduler.runnable is None and elsewhere.cpu.idle == 3


def test_servers_on_one_host_share_its_cpu_by_prometheus(options: Build, simulate: Any) -> None:
    views = [("s0", "h1"), ("s1", "h1"), ("s2", "h2")]
    metrics = {f"server-host:s{n}": FULL for n in range(3)} | {f"container:s{n}": {"cpu.usage": 1.5} for n in range(3)} | {"host": IDLE}
    seen, planned_trial, phase = listed(options, simulate, metrics, views)
    assert hosts_of_servers(planned_trial, 0, phase) == {"server-host:s0": ["s0", "s1"], "server-host:s2": ["s2"]}
    assert seen.cpu.total == 8 and seen.cpu.loaded == 4.5 and seen.bottleneck == "host-cpu"


def test_the_class_of_most_waits_needs_an_active_session() -> None:
    def waiting(**series: list[float]) -> TrialResult:
        phase = PhaseResult(phase="p", start=0, end=2, overlap=1, targets=[], waits={"c/pg": series})
        trial = Trial(point={}, deployment=Deployment(hosts=()), phases=())
        return TrialResult(id="1", trial=trial, started=0, ended=2, phases=[phase])

    assert main_wait(waiting(cpu=[1.0, 1.0], lock=[3.0, 2.0])) == "lock"
    assert main_wait(waiting(cpu=[2.0, 2.0], lock=[1.0, 1.0], io=[1.5, 1.5])) == ""
    assert main_wait(waiting(cpu=[0.0, 0.0], lock=[0.2, 0.1])) == "", "too few sessions to tell"
    assert main_wait(waiting()) == ""
