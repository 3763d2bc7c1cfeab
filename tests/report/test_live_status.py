import json
import time

import pytest

from pgherd.model.deployment import Host
from pgherd.model.errors import RunDirectoryError
from pgherd.model.load import LatencyObjective
from pgherd.model.run import Cluster, RunEnvironment
from pgherd.report import live_status as module
from pgherd.report.live_status import (
    LiveRun,
    SpooledReadings,
    SummedSeries,
    cpu_in_use,
    host_usage,
    newest_running,
    seconds_remaining,
)
from pgherd.store.live_state import LiveContainer, LivePhase, LiveState, LiveTrial, read_live, write_live
from pgherd.store.run_directory import RunDirectory

TRIAL = LiveTrial(number=1, point={}, repeat=0, reason="planned", begun=0.0, hosts=("a", "b"))


class ConstantReadings:
    """(entity, metric) → its series."""

    def __init__(self, series):
        self._series = series

    def series(self, entity, name):
        return self._series.get((entity, name), [])

    def latest(self, entity, name):
        return self._series[entity, name][-1][1] if (entity, name) in self._series else None


@pytest.fixture
def record(synthetic):
    return synthetic.density_run(8, seconds=3)[0]


@pytest.fixture
def clustered(record):
    (facts,) = record.hosts.values()
    hosts = {name: facts.model_copy(update={"logical_cpus": cpus}) for name, cpus in (("a", 2), ("b", 4))}
    over = Cluster(address="default", hosts=tuple(Host(name=name) for name in hosts))
    return record.model_copy(update={"hosts": hosts, "environment": RunEnvironment(runtime="cgroup", cores=6, memory=2**30, cluster=over)})


def test_of_one_host_there_is_one(record):
    readings = ConstantReadings(
        {
            ("host", "cpu.user"): [(1.0, 1.0), (2.0, 1.5)],
            ("host", "cpu.system"): [(1.0, 0.25), (2.0, 0.25)],
            ("host", "memory.total"): [(1.0, 100.0)],
            ("host", "memory.available"): [(1.0, 40.0)],
        }
    )
    host, each = host_usage(readings, record, TRIAL)
    (facts,) = record.hosts.values()
    assert (host.name, host.cpu, host.vcpus, host.memory, host.limit, each) == ("host", 1.75, facts.logical_cpus, 60.0, 100.0, [])
    assert cpu_in_use(readings, record, TRIAL) == [(1.0, 1.25), (2.0, 1.75)]


def test_several_are_shown_each_and_together(clustered):
    series = {}
    for name, cpu in (("a", 1.0), ("b", 2.5)):
        series |= {(f"host:{name}", "cpu.user"): [(1.0, 0.0), (2.0 if name == "a" else 2.4, cpu)]}
        series |= {(f"host:{name}", "memory.total"): [(1.0, 100.0)], (f"host:{name}", "memory.available"): [(1.0, 40.0)]}
    host, each = host_usage(ConstantReadings(series), clustered, TRIAL)
    assert (host.name, host.cpu, host.vcpus, host.memory, host.limit) == ("all hosts", 3.5, 6.0, 120.0, 200.0)
    assert [(item.name, item.cpu, item.vcpus) for item in each] == [("a", 1.0, 2), ("b", 2.5, 4)]
    assert cpu_in_use(ConstantReadings(series), clustered, TRIAL) == [(1.0, 0.0), (2.0, 1.0), (2.4, 3.5)], "latest reading of each"


def test_a_sum_over_some_hosts_is_none_over_all(clustered):
    readings = ConstantReadings({("host:a", "cpu.user"): [(1.0, 1.0)]})
    host, each = host_usage(readings, clustered, TRIAL)
    assert host.cpu is None and host.memory is None and each[0].cpu == 1.0 and each[1].cpu is None
    assert cpu_in_use(readings, clustered, TRIAL) == []


def test_only_hosts_that_take_part_are_shown(clustered):
    readings, alone = ConstantReadings({("host:a", "cpu.user"): [(1.0, 1.0)]}), TRIAL.model_copy(update={"hosts": ("a",)})
    host, each = host_usage(readings, clustered, alone)
    assert (host.cpu, host.vcpus) == (1.0, 2) and [use.name for use in each] == ["a"]
    assert cpu_in_use(readings, clustered, alone) == [(1.0, 1.0)]


NOW = 1_790_000_100.0
TARGETS = ("local/c01/pg/bench", "local/c02/pg/bench")


def line(t, source, raw):
    return json.dumps({"t": t, "i": source, "raw": raw}) + "\n"


SOURCES = json.dumps(
    {
        "sources": [
            ["cpu", "host", "file", "/proc/stat", ""],
            ["memory", "host", "file", "/proc/meminfo", ""],
            ["processes", "container:c01", "tree", "10", ""],
            ["diskstats", "host", "file", "/proc/diskstats", ""],
        ],
        "first": 0,
    }
)


def stat(user):
    return f"cpu  {user} 0 0 100 0 0 0 0 0 0\ncpu0 {user} 0 0 100 0 0 0 0 0 0\nctxt 1\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"


def process(ticks, pages):
    fields = ["S", *["0"] * 10, str(ticks), "0", "0", "0", *["0"] * 6, str(pages), *["0"] * 20]
    return f"10 (postgres) {' '.join(fields)}"


def disk(reads):
    return f"   8       0 sda {reads} 0 {reads * 16} 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"


@pytest.fixture
def running(tmp_path, synthetic):
    """A run of two finished trials whose third one is in its measured period, held by a lock as its process would."""
    record, results = synthetic.density_run(8, seconds=3)
    record = record.model_copy(update={"state": "running", "analysis": None, "ended": None})
    path = tmp_path / record.run
    synthetic.write_run(path, record, results[:2])
    output = tmp_path / "out"
    phase = LivePhase(name="steady", warmup=1, seconds=9, loads=dict.fromkeys(TARGETS, "pgbench"))
    trial = LiveTrial(
        number=3,
        point={"databases": 2},
        repeat=0,
        reason="planned",
        begun=NOW - 7,
        phases=(phase,),
        containers={"c01": LiveContainer(vcpus=0.5, memory=2**30)},
        output=str(output),
    )
    state = LiveState(
        pid=1, written=NOW - 5, trials_remaining=2, seconds_left=22.0, overhead=1.0, trial=trial, phase=0, phase_begun=NOW - 5
    )
    write_live(path, state)
    spool = path / "trials/0003.partial/spool.jsonl"
    spool.parent.mkdir(parents=True)
    spool.write_text(
        SOURCES
        + "\n"
        + line(NOW - 3, 0, stat(1000))
        + line(NOW - 3, 1, "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
        + line(NOW - 3, 2, process(100, 10))
        + line(NOW - 3, 3, disk(100))
        + line(NOW - 2.5, 0, stat(1075))
        + line(NOW - 2, 0, stat(1150))
        + line(NOW - 2, 2, process(150, 20))
        + line(NOW - 2, 3, disk(110))
    )
    for number, target in enumerate(TARGETS):
        place = output / "00" / target.replace("/", ".")
        place.mkdir(parents=True)
        lines = [f"progress: {NOW - 4 + second:.1f} s, {100 * (number + 1)}.0 tps, lat 1 ms stddev 0.1, 0 failed\n" for second in range(3)]
        (place / "stderr").write_text("".join(lines[: 3 - number]))
    directory = RunDirectory(path)
    with directory.locked():
        yield directory


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    monkeypatch.setattr(module.time, "time", lambda: NOW)


def test_everything_is_seen(running):
    shown = LiveRun(running).look()
    assert (shown.state, shown.trials_done, shown.trials_remaining) == ("running", 2, 3)
    assert shown.seconds_remaining == pytest.approx(22 + 5), "10 s of phases, half of which are over, and two more trials"
    assert (shown.trial.number, shown.trial.phase, shown.trial.phase_part) == (3, 1, "measured")
    assert (shown.trial.elapsed, shown.trial.seconds, shown.trial.drivers) == (4.0, 9.0, {"pgbench": 2})
    assert shown.throughput.value == 300 and shown.throughput.reporting == shown.throughput.targets == 2
    assert [value for _, value in shown.throughput.series] == [300, 300], "only one reported the third second"
    assert shown.host.cpu == pytest.approx(1.5) and shown.host.memory == 1000 * 1024
    (container,) = shown.containers
    assert (container.name, container.vcpus, container.limit) == ("c01", 0.5, 2**30)
    assert container.cpu == pytest.approx(0.5) and container.memory == 20 * 4096
    (device,) = shown.devices
    assert (device.name, device.reads) == ("sda", pytest.approx(10)) and device.read_bytes == pytest.approx(10 * 16 * 512)
    assert shown.answer is None and shown.resume is None


def test_a_second_look_reads_only_what_is_new(running):
    live = LiveRun(running)
    before = live.look()
    with open(running.path / "trials/0003.partial/spool.jsonl", "a") as spool:
        spool.write(line(NOW - 1, 0, stat(1250)))
    with open(running.path.parent / "out/00" / TARGETS[1].replace("/", ".") / "stderr", "a") as file:
        file.write(f"progress: {NOW - 2:.1f} s, 250.0 tps, lat 1 ms stddev 0.1, 0 failed\n")
    after = live.look()
    assert after.host.cpu == pytest.approx(1.0) and after.throughput.value == 350
    assert len(after.throughput.series) == len(before.throughput.series) + 1
    assert live.readings.series("host", "cpu.user") == [(NOW - 2, pytest.approx(1.5)), (NOW - 1, pytest.approx(1.0))]


def test_of_several_hosts_what_each_has_shown_is_seen(running):
    record = running.record()
    (facts,) = record.hosts.values()
    hosts = {name: facts.model_copy(update={"logical_cpus": 2}) for name in ("a", "b")}
    over = Cluster(address="default", hosts=tuple(Host(name=name) for name in hosts))
    surroundings = RunEnvironment(runtime="cgroup", cores=4, memory=2**30, cluster=over)
    running.save(record.model_copy(update={"hosts": hosts, "environment": surroundings}))
    lines = [{"sources": [["cpu", f"host:{name}", "read on", name, ""] for name in hosts], "first": 0}]
    for number in (0, 1):
        lines += [{"t": NOW - 6 + at, "i": number, "values": {"cpu.user": (1 + number) * at}} for at in (0.0, 5.0)]
    (running.path / "trials/0003.partial/spool.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = read_live(running.path)
    write_live(running.path, state.model_copy(update={"trial": state.trial.model_copy(update={"hosts": ("a", "b")})}))
    live = LiveRun(running)
    shown = live.look()
    assert (shown.host.name, shown.host.cpu, shown.host.vcpus) == ("all hosts", pytest.approx(3.0), 4.0)
    assert [(item.name, item.cpu, item.vcpus) for item in shown.hosts] == [("a", pytest.approx(1.0), 2), ("b", pytest.approx(2.0), 2)]
    assert live.cpu == [(NOW - 1, pytest.approx(3.0))]


def test_the_ramp_is_told_apart(running, monkeypatch):
    monkeypatch.setattr(module.time, "time", lambda: NOW - 4.5)
    shown = LiveRun(running).look().trial
    assert (shown.phase_part, shown.elapsed, shown.seconds) == ("warmup", 0.5, 1.0)


def test_while_nothing_runs_there_is_a_step(running):
    write_live(running.path, LiveState(pid=1, written=NOW, step="copying 8 databases", trials_remaining=4, seconds_left=None))
    shown = LiveRun(running).look()
    assert shown.setup_step == "copying 8 databases" and shown.trial is None and shown.host is None
    assert (shown.trials_remaining, shown.seconds_remaining) == (4, None)


def test_a_run_without_a_state_is_still_a_run(running):
    (running.path / "live.json").unlink()
    shown = LiveRun(running).look()
    assert shown.state == "running" and shown.trials_done == 2 and shown.trials_remaining is None


def test_what_ended_is_told_with_its_verdicts(running, synthetic):
    live = LiveRun(running)
    assert {trial.id for trial in live.look().trials} == {"0001", "0002"}
    _, results = synthetic.density_run(8, seconds=3)
    third = results[2].model_copy(update={"id": "0003", "error": "a server died", "phases": []})
    (running.path / "trials/0003").mkdir()
    (running.path / "trials/0003/trial.json").write_text(third.model_dump_json())
    (running.path / "trials/0004").mkdir()
    (running.path / "trials/0004/trial.json").write_text("{")
    shown = live.look().trials
    assert [item.id for item in shown] == ["0001", "0002", "0003"] and shown[2].error == "a server died" and shown[2].throughput is None
    assert shown[0].unit == "tps" and shown[0].throughput > 0 and shown[0].passed > 0


def test_blocks_of_a_search_are_judged_by_its_objectives(running, synthetic):
    objective = LatencyObjective(percentile=99, limit_ms=10)
    running.save(running.record().model_copy(update={"options": {**running.record().options, "objectives": [objective.model_dump()]}}))
    _, results = synthetic.density_run(8, seconds=3)

    def block(name, late):
        phases = []
        for phase in results[0].phases:
            counts = {"logged_tx": 1000.0, f"late_{objective.key}_tx": late}
            targets = [target.model_copy(update={"values": counts}) for target in phase.targets]
            phases.append(phase.model_copy(update={"targets": targets}))
        planned = [
            phase.model_copy(
                update={"loads": {name: load.model_copy(update={"objectives": (objective,)}) for name, load in phase.loads.items()}}
            )
            for phase in results[0].trial.phases
        ]
        trial = results[0].trial.model_copy(update={"phases": tuple(planned)})
        (running.path / "trials" / name).mkdir()
        done = results[0].model_copy(update={"id": name, "trial": trial, "phases": phases})
        (running.path / "trials" / name / "trial.json").write_text(done.model_dump_json())

    block("0003", 10.0)
    block("0004", 11.0)
    shown = {trial.id: trial for trial in LiveRun(running).look().trials}
    assert shown["0001"].misses is None and shown["0001"].judgement == "", "closed loop"
    assert shown["0003"].misses == [] and shown["0004"].misses == ["percentile"]
    assert shown["0004"].model_dump(mode="json")["misses"] == ["percentile"]


def test_a_killed_run_is_told_with_how_to_go_on(tmp_path, synthetic):
    record, results = synthetic.density_run(8, seconds=3)
    synthetic.write_run(tmp_path / record.run, record.model_copy(update={"state": "running", "analysis": None}), results[:1])
    directory = RunDirectory(tmp_path / record.run)
    (directory.path / "lock").touch()
    shown = LiveRun(directory).look()
    assert shown.state == "killed" and shown.resume == f"pgherd resume {directory.path}" and shown.trials_remaining is None
    assert newest_running(tmp_path) is None


def test_one_that_has_just_been_resumed_runs(running):
    record = running.record().model_copy(update={"state": "interrupted", "error": "its process was killed"})
    running.save(record)
    assert LiveRun(running).look().state == "running"


def test_one_that_is_about_to_begin_is_not_taken_for_killed(tmp_path, synthetic):
    record, _ = synthetic.density_run(8, seconds=3)
    young = record.model_copy(update={"state": "running", "analysis": None, "started": NOW - 1})
    synthetic.write_run(tmp_path / record.run, young, [])
    assert LiveRun(RunDirectory(tmp_path / record.run)).look().state == "running"


def test_a_finished_run_has_its_answer(tmp_path, synthetic):
    record, results = synthetic.density_run(8, seconds=3)
    synthetic.write_run(tmp_path / record.run, record, results)
    shown = LiveRun(RunDirectory(tmp_path / record.run)).look()
    assert shown.state == "finished" and shown.answer == record.analysis.answer and shown.grade == record.analysis.grade
    assert shown.resume is None and shown.trials_done == len(results)


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        LiveRun(RunDirectory(tmp_path)).look()


def test_the_newest_running_one_is_found(running):
    assert newest_running(running.path.parent).path == running.path


def test_a_counter_that_falls_begins_anew(tmp_path):
    spool = tmp_path / "spool.jsonl"
    spool.write_text(SOURCES + "\n" + "".join(line(NOW + t, 0, stat(user)) for t, user in ((0, 1000), (1, 1100), (2, 50), (3, 250))))
    readings = SpooledReadings(spool)
    readings.read()
    assert readings.series("host", "cpu.user") == [(NOW + 1, pytest.approx(1)), (NOW + 3, pytest.approx(2))]
    assert readings.latest("host", "cpu.steal") == 0 and readings.latest("host", "no.such") is None
    assert readings.entities("container:") == []


def test_parts_are_summed_when_all_have_told():
    both = SummedSeries(2)
    both.add(0, [(1.2, 10), (2.2, 20), (4.1, 40)])
    assert list(both.series) == []
    both.add(1, [(1.9, 1), (3.0, 3), (4.9, 4)])
    assert list(both.series) == [(1.0, 11), (4.0, 44)]


@pytest.mark.parametrize(
    ("changes", "remaining"),
    [
        ({}, 22.0),
        ({"trial": "yes"}, 22 + 11 - 3),
        ({"trial": "yes", "phase": 0, "phase_begun": NOW - 2}, 22 + 8),
        ({"trial": "yes", "phase": 0, "phase_begun": NOW - 60}, 22),
        ({"seconds_left": None}, None),
        ({"trial": "open", "phase": 0, "phase_begun": NOW - 2}, 22),
        ({"trial": "open", "overhead": None}, None),
    ],
)
def test_time_left(changes, remaining):
    if "trial" in changes:
        until = "drivers" if changes["trial"] == "open" else "clock"
        phase = LivePhase(name="p", warmup=1 if until == "clock" else 0, seconds=9, until=until)
        changes = {**changes, "trial": LiveTrial(number=1, point={}, repeat=0, reason="", begun=NOW - 3, phases=(phase,))}
    state = LiveState(**{"pid": 1, "written": NOW, "seconds_left": 22.0, "overhead": 1.0, **changes})
    assert seconds_remaining(state, NOW) == remaining
    assert time.time() == NOW
