import pytest

from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import TrialResult
from pgherd.study.comparison import metrics, time_slices, variants


def results(options, simulate, side="base", **how):
    study_options = options()
    outcome = simulate(study_options, noise=0.0, **how).all(variants.block_trials(study_options, 0))
    return [result for result in outcome if result.trial.point["variant"] == side]


def test_metrics_are_those_of_the_window_per_transaction(options, simulate):
    observed = metrics.metric_values(
        results(
            options,
            simulate,
            metrics={
                "container:db01": {"memory.usage": 64 * 2**20},
                "server:db01/pg": {"wal.bytes": 5e6},
                "disk:sda": {"read_bytes": 2e6, "write_bytes": 1e6},
                "disk:dm-0": {"read_bytes": 2e6, "write_bytes": 1e6},
            },
        )
    )
    assert observed == pytest.approx(
        {
            "throughput": 10_000,
            "cpu_per_tx": 0.1,
            "p50": 0.1,
            "p95": 0.2,
            "p99": 0.4,
            "memory": 64,
            "wal_per_tx": 500,
            "device_bytes_per_tx": 300,
            "context_switches_per_tx": 2,
        }
    )


def test_what_was_not_seen_is_absent(options, simulate):
    observed = metrics.metric_values(results(options, simulate, p99=False))
    assert {"p99", "memory", "wal_per_tx", "device_bytes_per_tx"}.isdisjoint(observed) and "p95" in observed
    failed = results(options, simulate, fail=lambda trial: "no")
    assert metrics.metric_values(failed) == {}


def test_devices_and_switches_are_those_of_the_servers_host(options, simulate):
    """Those of this host are left out if the servers are elsewhere."""
    disks = {"disk:sda": {"read_bytes": 2e6, "write_bytes": 1e6}, "server-disk:db01/sdb": {"read_bytes": 1e6, "write_bytes": 1e6}}
    (result,) = results(options, simulate, metrics=disks)
    (host,), (phase,) = result.trial.deployment.hosts, result.phases
    external = tuple(container.model_copy(update={"runtime": "external"}) for container in host.containers)
    deployment = result.trial.deployment.model_copy(update={"hosts": (host.model_copy(update={"containers": external}),)})
    trial = result.trial.model_copy(update={"deployment": deployment})

    def observed(metrics_seen, views=()):
        changed = phase.model_copy(update={"metrics": metrics_seen, "prometheus": list(views)})
        values = metrics.metric_values([result.model_copy(update={"trial": trial, "phases": [changed]})])
        return values.get("device_bytes_per_tx"), values.get("context_switches_per_tx")

    elsewhere = {entity: values for entity, values in phase.metrics.items() if entity != "container:db01"}
    view = PrometheusView(container="db01", url="http://p", match="db1", step=1, gaps=0, longest_gap=None, series=[], sparse=[], missing=[],
                          clock_ahead=0, seconds=0)  # fmt: skip
    assert observed(phase.metrics) == (pytest.approx(300), pytest.approx(2)), "its cgroup is here"
    assert observed(elsewhere) == (None, None)
    assert observed(elsewhere, [view]) == (pytest.approx(200), None)


def test_several_points_have_each_metric_and_their_geometric_mean(options, server, simulate):
    study_options = options({"a": server(databases=(1, 4)), "b": server(databases=(1, 4), protocol="simple")})
    result = [r for r in simulate(study_options, noise=0.0).all(variants.block_trials(study_options, 0)) if r.trial.point["variant"] == "b"]
    observed = metrics.metric_values(result, "throughput")
    assert observed == pytest.approx({"throughput@databases=1": 10_000, "throughput@databases=4": 40_000, "throughput": 20_000})
    assert metrics.metric("throughput@databases=4").label == "throughput at databases=4"
    assert metrics.metric_values(result, "p95@databases=4").keys() == {"p95@databases=1", "p95@databases=4", "p95"}


def test_a_point_at_a_given_rate_is_left_out_of_the_mean(options, server, simulate):
    """A link's idle trickle is as fast on every link: with it a loss of 5 % would look like less."""
    study_options = options({"a": server(databases=(1, 4)), "b": server(databases=(1, 4), protocol="simple")})
    outcome = [
        r for r in simulate(study_options, noise=0.0).all(variants.block_trials(study_options, 0)) if r.trial.point["variant"] == "b"
    ]
    outcome.sort(key=lambda result: result.trial.point["databases"])
    for change in ({"options": {"rate": "1M"}}, {"rate": 100.0}):
        mixed = [_loaded(outcome[0], change), outcome[1]]
        observed = metrics.metric_values(mixed, "throughput")
        assert observed == pytest.approx({"throughput@databases=1": 10_000, "throughput@databases=4": 40_000, "throughput": 40_000})
    assert metrics.metric_values([_loaded(result, {"rate": 100.0}) for result in outcome], "throughput")["throughput"] == pytest.approx(
        20_000
    )


def _loaded(result, change):
    loads = {target: load.model_copy(update=change) for target, load in result.trial.phases[0].loads.items()}
    phases = tuple(phase.model_copy(update={"loads": loads}) for phase in result.trial.phases)
    return result.model_copy(update={"trial": result.trial.model_copy(update={"phases": phases})})


def test_a_probes_readings_are_metrics_too(options, simulate):
    trial = variants.block_trials(options(), 0)[0]
    result = TrialResult(id="1", trial=trial, started=0, ended=1, probe={"database_bytes": 5.0})
    assert metrics.metric_values([result]) == {"database_bytes": 5.0}


def test_an_arms_own_findings(options, server, simulate):
    study_options = options({"a": server(databases=(1, 2, 4)), "b": server(databases=(1, 2, 4), protocol="simple")})
    result = [r for r in simulate(study_options, noise=0.0).all(variants.block_trials(study_options, 0)) if r.trial.point["variant"] == "a"]
    own = metrics.study_findings(study_options.variant("a"), result)
    assert own["efficiency_at_saturation"].value == pytest.approx(1.0, rel=0.01)
    assert all(finding.value is not None for finding in own.values())


@pytest.mark.parametrize("name", metrics.METRICS)
def test_every_metric_can_be_told(name):
    metric = metrics.METRICS[name]
    assert metric.better_direction in ("higher", "lower") and metric.words[0] != metric.words[1] and metric.absent and metric.unit


def test_words_go_with_what_is_better():
    assert metrics.METRICS["throughput"].words == ("faster", "slower")
    assert metrics.METRICS["p95"].words == ("slower", "faster")
    assert metrics.METRICS["cpu_per_tx"].words == ("higher cost", "lower cost")
    unknown = metrics.metric("usl_peak_load", "tps")
    assert unknown.better_direction == "" and unknown.words == ("higher", "lower") and unknown.unit == "tps"


def test_only_servers_under_load_count(options, simulate):
    study_options = options(interleave="slices")
    (trial,) = variants.block_trials(study_options, 1)
    base, other = variants.container_names(study_options)["base"], variants.container_names(study_options)["other"]
    wal = {f"server:{base}/pg": {"wal.bytes": 20_000.0}, f"server:{other}/pg": {"wal.bytes": 5e9}}
    (result,) = (
        r
        for r in time_slices.split_variants([simulate(study_options, noise=0.0, metrics=wal).run(trial)])
        if r.trial.point["variant"] == "base"
    )
    assert metrics.metric_values([result])["wal_per_tx"] == pytest.approx(6.0, rel=1e-6), "a third of the window's transactions are its own"


def test_nopm(options, simulate):
    study_options = options()
    result = simulate(study_options).run(variants.block_trials(study_options, 0)[0])
    assert "nopm" not in metrics.metric_values([result])
    phase = result.phases[0]
    target = phase.targets[0].model_copy(update={"nopm": 1234.0})
    entered = result.model_copy(update={"phases": [phase.model_copy(update={"targets": [target]})]})
    assert metrics.metric_values([entered])["nopm"] == 1234.0
    assert metrics.METRICS["nopm"].better_direction == "higher"


@pytest.fixture
def fio(options, simulate):
    """A trial like any other, but that fio loads."""
    study_options = options()
    result = simulate(study_options).run(variants.block_trials(study_options, 0)[0])
    loads = {target: load.model_copy(update={"driver": "fio"}) for target, load in result.trial.phases[0].loads.items()}
    phases = tuple(phase.model_copy(update={"loads": loads}) for phase in result.trial.phases)
    return result.model_copy(update={"trial": result.trial.model_copy(update={"phases": phases})})


def test_throughput_is_named_after_what_is_counted(options, simulate, fio):
    study_options = options()
    assert metrics.metric_for("throughput", [simulate(study_options).run(variants.block_trials(study_options, 0)[0])]).unit == "tps"
    assert metrics.metric_for("throughput", [fio]).unit == "IOPS" and metrics.metric_for("throughput@volume=a", [fio]).unit == "IOPS"
    assert metrics.metric_for("p95", [fio]).unit == "ms" and metrics.metric_for("iops.random-read", [fio], "IOPS").unit == "IOPS"


def test_nothing_is_told_per_transaction_where_there_are_none(fio):
    result = {name: metrics.metric_for(name, [fio]) for name in (*metrics.METRICS, "context_switches_per_tx@volume=a")}
    for item in result.values():
        assert "transaction" not in item.label + item.absent and item.unit != "tps", item
    assert result["cpu_per_tx"].label == "CPU per I/O" and result["device_bytes_per_tx"].label == "device I/O per I/O"
    assert result["context_switches_per_tx@volume=a"].label == "context switches per I/O at volume=a"
    assert "sampled I/Os" in result["p95"].absent


@pytest.mark.parametrize(
    ("name", "better", "extra"),
    [
        ("random_read_iops", "higher", "faster"),
        ("sequential_write_bandwidth.data", "higher", "faster"),
        ("qd1_write_latency", "lower", "slower"),
        ("qd1_write_latency.data.db2", "lower", "slower"),
        ("rate_achieved", "", "higher"),
        ("host_imbalance", "", "higher"),
    ],
)
def test_of_a_volumes_figures_it_is_known_what_is_better(name, better, extra):
    result = metrics.metric(name, "x")
    assert (result.better_direction, result.words[0], result.unit) == (better, extra, "x") and "iops" not in result.label
