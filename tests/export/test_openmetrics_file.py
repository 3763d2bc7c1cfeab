import io
import shutil
import subprocess
from itertools import pairwise

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgherd.export.openmetrics_file import write
from pgherd.metrics.openmetrics import families
from pgherd.metrics.run_metrics import FAMILIES, LIVE_ONLY
from pgherd.model.analysis import Finding
from pgherd.model.errors import RunDirectoryError
from pgherd.store.samples import write_samples

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


def sampled(result):
    """Samples of a trial: a host that works, counters that are torn or fall once."""
    start = result.started
    for i in range(6):
        t = start + i + 0.1234567
        yield t, "cpu", "host", {"cpu.user": 100 + 2.0 * i, "cpu.idle": 50 + i, "cpu.online": 8.0}
        yield t, "cgroup_cpu", "container:c01", {"cpu.usage": (0.0, 1.0, 0.5, 2.0, 3.0, 4.0)[i]}
        yield t, "database", "server:c01/pg", {"db.xact_commit": (10.0, 20.0, 3.0, 4.0, 5.0, 6.0)[i]}
        yield t, "processes", "driver:local/c01/pg/bench", {"cpu.usage": 0.1 * i, "memory.rss": 4096.0}
        yield t, "processes", "pgherd", {"cpu.usage": 0.01 * i}
        yield t, "diskstats", "disk:vda", {"writes": 10.0 * i, "write_bytes": 81920.0 * i}
        yield t, "cpu", "moon", {"cpu.user": 1.0}
    yield start + 5.1234567, "cpu", "host", {"cpu.user": 110.0}  # read twice at one instant


@pytest.fixture(scope="module")
def run(synthetic, tmp_path_factory):
    """A run of four trials on disk, of which one failed, with samples and drivers' output."""
    record, results = synthetic.density_run(8, seconds=3)
    results = [results[0], results[1], results[2], results[-1]]
    path = tmp_path_factory.mktemp("runs") / record.run
    for result in results:
        directory = path / "trials" / result.id
        directory.mkdir(parents=True)
        if result.error is None:
            write_samples(directory, sampled(result))
            phase = result.phases[0]
            for i, target in enumerate(phase.targets):
                name = f"drivers/00-steady/{i}/stderr"
                (directory / name).parent.mkdir(parents=True)
                ahead = 1000.0 * i  # as on hosts with different clocks
                phase.targets[i] = target = target.model_copy(update={"clock_ahead": ahead})
                at = [phase.start + 1 + n + ahead for n in range(3)]
                lines = [f"progress: {t:.3f} s, 100.0 tps, lat 2.500 ms stddev 0.1, 0 failed, lag 0.500 ms" for t in at]
                (directory / name).write_text("\n".join(lines) + "\n")
                target.raw.append(name)
    return path, record, results


@pytest.fixture(scope="module")
def exported(run):
    out = io.StringIO()
    written = write(*run, out)
    return out.getvalue(), written


@pytest.fixture(scope="module")
def parsed(exported):
    """Family → samples, by prometheus_client's strict parser: it insists on grouping, order of time, units and types."""
    return {family.name: family for family in text_string_to_metric_families(exported[0])}


def series(parsed, family, **labels):
    return [(float(sample.timestamp), sample.value) for sample in parsed[family].samples if labels.items() <= sample.labels.items()]


def test_it_is_openmetrics_with_an_instant_for_every_sample(exported, parsed):
    text, written = exported
    samples = [sample for family in parsed.values() for sample in family.samples]
    assert all(sample.timestamp is not None for sample in samples)
    assert written.samples == len(samples) and written.families == len(parsed)
    instants = [float(sample.timestamp) for sample in samples]
    assert (written.first, written.last) == (pytest.approx(min(instants), abs=1e-3), pytest.approx(max(instants), abs=1e-3))
    assert text.endswith("# EOF\n")


def test_only_known_families_are_in_it(parsed):
    known = {family.name: family for family in (*families(), *FAMILIES) if family not in LIVE_ONLY}
    assert set(parsed) <= set(known)
    for name, family in parsed.items():
        assert (family.type, family.unit, family.documentation) == (known[name].kind, known[name].unit, known[name].help)
        assert all(set(sample.labels) == {"run", "host", *known[name].labels} for sample in family.samples), name


def test_samples_are_told_as_they_were_read(run, parsed):
    _, record, results = run
    first = results[0]
    user = series(parsed, "pgherd_host_cpu_seconds", mode="user")
    assert len(user) == 3 * 6, "one for each millisecond"
    assert user[:2] == [(pytest.approx(first.started + 0.123, abs=1e-3), 100.0), (pytest.approx(first.started + 1.123, abs=1e-3), 102.0)]
    assert {sample.labels["host"] for sample in parsed["pgherd_host_cpus_online"].samples} == {"db-host-1"}
    assert {item.labels["run"] for item in parsed["pgherd_process_cpu_usage_seconds"].samples} == {record.run}


def test_samples_of_version_1_have_the_names_of_today(synthetic, tmp_path):
    record, results = synthetic.density_run(8, seconds=3)
    path = tmp_path / record.run
    directory = path / "trials" / results[0].id
    directory.mkdir(parents=True)
    old = [(results[0].started + i, "cgroup_memory", "budget", {"memory.refault_file": 2.0 * i, "memory.usage": 8.0}) for i in range(3)]
    write_samples(directory, old)
    out = io.StringIO()
    write(path, record, results[:1], out)
    families = {family.name: family for family in text_string_to_metric_families(out.getvalue())}
    assert [value for _, value in series(families, "pgherd_run_cgroup_memory_refaults", type="file")] == [0, 2, 4]
    assert [value for _, value in series(families, "pgherd_run_cgroup_memory_usage_bytes")] == [8, 8, 8]


def test_torn_counters_are_bridged_within_a_trial_and_begin_anew_with_the_next(parsed):
    values = [value for _, value in series(parsed, "pgherd_container_cpu_usage_seconds", container="c01")]
    assert values == [0, 1, 1, 2, 3, 4] * 3
    commits = [value for _, value in series(parsed, "pgherd_server_db_xact_commit", container="c01", server="pg")]
    assert commits == [10, 20, 3, 4, 5, 6] * 3, "statistics may be reset"
    host = [value for _, value in series(parsed, "pgherd_host_cpu_seconds", mode="idle")]
    assert host == sorted(host), "the host's go on, or keep their level"


def test_a_series_of_two_samplers_is_in_order_of_time(synthetic, tmp_path):
    """A comparison of runtimes: without a cgroup, the processes of a container are read."""
    record, results = synthetic.density_run(8, seconds=3)
    path = tmp_path / record.run
    for result, sampler in zip(results[:3], ("processes", "cgroup_cpu", "processes"), strict=True):
        (directory := path / "trials" / result.id).mkdir(parents=True)
        write_samples(directory, [(result.started + i, sampler, "container:c01", {"cpu.usage": 1.0 + i}) for i in range(3)])
    out = io.StringIO()
    write(path, record, results[:3], out)
    families = {family.name: family for family in text_string_to_metric_families(out.getvalue())}
    values = series(families, "pgherd_container_cpu_usage_seconds", container="c01")
    assert [value for _, value in values] == [1, 2, 3] * 3 and [at for at, _ in values] == sorted(at for at, _ in values)


def test_the_run_s_own_totals_are_in_it(run, parsed):
    _, _, results = run
    complete = sum(target.transactions for result in results for phase in result.phases for target in phase.targets)
    last = {}
    for sample in parsed["pgherd_run_transactions"].samples:
        last[sample.labels["target"]] = sample.value
    assert sum(last.values()) == pytest.approx(complete)
    trials = {item.labels["result"]: item.value for item in parsed["pgherd_trials_finished"].samples}
    assert sum(trials.values()) == 4 and trials["failed"] == 1


def test_an_objective_is_in_it_with_what_keeps_it(run, tmp_path):
    _, record, results = run
    found = record.analysis.model_copy(update={"findings": {"capacity": Finding(value=12, unit="databases", low=11, high=13)}})
    search = {"options": {**record.options, "objectives": [{"percentile": 99, "limit_ms": 10}]}, "analysis": found}
    out = io.StringIO()
    write(tmp_path, record.model_copy(update=search), results[:1], out)
    families = {family.name: family for family in text_string_to_metric_families(out.getvalue())}
    assert {value for _, value in series(families, "pgherd_objective_limit_seconds", objective="p99_10ms")} == {0.01}
    for statistic, expected in (("low", 11), ("value", 12), ("high", 13)):
        ((at, value),) = series(families, "pgherd_objective_capacity", unit="databases", statistic=statistic)
        assert value == expected and at == pytest.approx(results[0].ended, abs=1e-3)


def test_results_and_phases_stand_at_their_instants(run, parsed):
    _, _, results = run
    for result in results[:3]:
        (at, window) = series(parsed, "pgherd_result_window_seconds", trial=result.id)[0]
        assert at == pytest.approx(result.ended, abs=1e-3) and window == pytest.approx(result.phases[0].seconds)
        measured = series(parsed, "pgherd_phase", trial=result.id, part="measured")
        phase = result.phases[0]
        assert measured[0][0] == pytest.approx(phase.start, abs=1e-3) and measured[-1][0] == pytest.approx(phase.end, abs=1e-3)
        assert all(b - a <= 1.001 for (a, _), (b, _) in pairwise(measured))


def test_what_drivers_told_adds_up_over_trials(run, parsed):
    _, _, results = run
    target = results[0].phases[0].targets[0].target
    times = sum(target in {item.target for item in phase.targets} for result in results for phase in result.phases)
    assert series(parsed, "pgherd_driver_transactions", target=target)[-1][1] == pytest.approx(300 * times)
    assert series(parsed, "pgherd_driver_lag_seconds", target=target)[-1][1] == pytest.approx(0.0005)


def test_what_drivers_of_other_hosts_told_stands_on_the_run_s_clock(run, parsed):
    _, _, results = run
    phases = [phase for result in results for phase in result.phases]
    assert any(target.clock_ahead > 0 for phase in phases for target in phase.targets)
    reported = [float(sample.timestamp) for sample in parsed["pgherd_driver_transactions"].samples]
    assert all(any(phase.start + 0.999 <= at <= phase.start + 3.001 for phase in phases) for at in reported)


@promtool
def test_prometheus_makes_blocks_of_it_that_hold_every_sample(run, exported, tmp_path):
    *_, results = run
    text, written = exported
    file, data = tmp_path / "run.om", tmp_path / "data"
    file.write_text(text)
    finished = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(data)], capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    (data / "wal").mkdir()  # promtool dumps no blocks without one
    dumped = subprocess.run(["promtool", "tsdb", "dump", str(data)], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(dumped) == written.samples
    ends = {}
    for line in dumped:
        if 'pgherd_run_transactions_total"' in line:
            labels, value, t = line.rsplit(" ", 2)
            ends[labels] = max(ends.get(labels, (0, 0.0)), (int(t), float(value)))
    complete = sum(target.transactions for result in results for phase in result.phases for target in phase.targets)
    assert sum(value for _, value in ends.values()) == pytest.approx(complete, rel=0.01)


def test_a_run_without_samples_still_tells_its_results(synthetic, tmp_path):
    record, results = synthetic.density_run(8, seconds=3)
    out = io.StringIO()
    write(tmp_path, record, results[:1], out)
    names = {family.name for family in text_string_to_metric_families(out.getvalue())}
    assert "pgherd_result_transactions" in names and "pgherd_host_cpu_seconds" not in names


def test_samples_that_cannot_be_read_are_one_error(synthetic, tmp_path):
    record, results = synthetic.density_run(8, seconds=3)
    broken = tmp_path / "trials" / results[0].id / "samples"
    broken.mkdir(parents=True)
    (broken / "cpu.parquet").write_bytes(b"no parquet")
    with pytest.raises(RunDirectoryError, match=f"cannot read the samples of run {record.run}"):
        write(tmp_path, record, results[:1], io.StringIO())


def test_a_time_to_which_no_second_can_be_added_is_one_error(synthetic, tmp_path):
    record, results = synthetic.density_run(8, seconds=3)
    changed = [results[0].model_copy(update={"started": 1e17, "ended": 1e17 + 64})]
    with pytest.raises(RunDirectoryError, match="a time in the run's files is wrong: 1e"):
        write(tmp_path / record.run, record, changed, io.StringIO())


@pytest.mark.parametrize("change", [{"started": 0.0}, {"ended": 1e300}])
def test_times_that_are_years_apart_are_one_error(synthetic, tmp_path, change):
    """Samples of each second since 1970 took all memory of the host."""
    record, results = synthetic.density_run(8, seconds=3)
    changed = [results[0].model_copy(update=change)]
    with pytest.raises(RunDirectoryError, match=r"a time in the run's files is wrong: .* days, and an export has 105 at most"):
        write(tmp_path / record.run, record, changed, io.StringIO())


def test_hostile_words_stay_words(synthetic, tmp_path):
    record, results = synthetic.hostile(*synthetic.density_run(8, repeats=1))
    out = io.StringIO()
    write(tmp_path, record, results, out)
    assert list(text_string_to_metric_families(out.getvalue()))
