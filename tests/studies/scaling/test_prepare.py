"""Completing a scaling request for this host."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from pgherd.model.errors import PgherdError, UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import templates
from pgherd.postgres.version_differences import VersionDifference
from pgherd.prepare import servers
from pgherd.studies.scaling import prepare as module
from pgherd.studies.scaling.options import ScalingRequest
from pgherd.studies.scaling.prepare import prepare
from pgherd.studies.scaling.propose import planned

pytestmark = pytest.mark.usefixtures("own_directories")


def prepared(**requested):
    return prepare(LocalNode(), ScalingRequest(**requested), dry=True)


def test_a_plain_request_is_one_server_with_all_cores():
    prepared_study = prepared()
    options = prepared_study.options
    assert options.clients[0] == 1 and options.clients[-1] >= 2 * options.host_cores
    assert (options.vcpus, options.cpu_mode, options.container_memory) == (options.host_cores, "none", None)
    assert options.client_placement == "outside" and options.refine and options.variants == ()
    assert int(options.settings["max_connections"]) >= options.max_clients + 5, "a peak past the planned clients can be looked for"
    assert options.time_budget >= sum(trial.seconds() for trial in planned(options))
    assert prepared_study.study == "scaling"


def test_the_same_seed_gives_the_same_options():
    assert prepared(seed=7, host_memory="2GB").options == prepared(seed=7, host_memory="2GB").options


def test_the_clients_that_were_asked_for_and_no_others():
    options = prepared(clients=(4, 1, 9)).options
    assert (options.clients, options.max_clients, options.refine) == ((1, 4, 9), 9, False)


def test_limits_that_were_asked_for_hold():
    options = prepared(vcpus=1, runtime="process").options
    assert (options.vcpus, options.cpu_mode, options.threads) == (1, "cpuset", 1)
    assert options.clients == (1, 2, 3, 4)


def test_an_existing_template_and_the_settings_of_wal_count_for_the_disk(monkeypatch):
    given, real = {}, module.disk_space
    monkeypatch.setattr(module, "disk_space", lambda *inputs, **named: given.update(named) or real(*inputs, **named))
    monkeypatch.setattr(templates, "find", lambda *_: "found")
    prepared(workload="tpcb-like", vcpus=1, clients=(1,), runtime="process")
    assert given["writes"] and given["settings"]["max_wal_size"] == "4GB" and given["loaded"] == 1


def test_clients_for_which_memory_is_too_small_are_left_out_and_that_is_said():
    prepared_study = prepared(vcpus=1, runtime="process", scale=1, host_memory="70MB")
    assert 1 <= prepared_study.options.clients[-1] < 4
    assert any(choice.startswith(f"At most {prepared_study.options.clients[-1]} client") for choice in prepared_study.defaults_chosen)
    assert not any(choice.startswith("At most") for choice in prepared(vcpus=1, runtime="process").defaults_chosen)


def test_a_load_that_writes_gets_as_many_branches_as_clients():
    prepared_study = prepared(workload="tpcb-like", vcpus=1, clients=(1, 30))
    assert prepared_study.options.scale == 30
    assert any(
        choice.startswith("Scale 30: each transaction of tpcb-like updates one of 30 branches") for choice in prepared_study.defaults_chosen
    )
    assert prepared(workload="tpcb-like", clients=(1, 30), scale=5).options.scale == 5
    assert prepared(clients=(1, 30)).options.scale == 10, "a load that only reads needs no more"


def test_variants_share_all_but_what_they_change():
    prepared_study = prepared(variant=("base", "odd:jit=off,work_mem=8MB,protocol=simple,scale=3"), set=("work_mem=6MB",), clients=(1, 2))
    options = prepared_study.options
    base, odd = (variant.options for variant in options.variants)
    assert (base.settings["work_mem"], odd.settings["work_mem"], odd.settings["jit"]) == ("6MB", "8MB", "off")
    assert (base.protocol, odd.protocol, base.scale, odd.scale) == ("prepared", "simple", 10, 3)
    assert (
        (base.seed, base.host_memory, base.host_cores)
        == (odd.seed, odd.host_memory, odd.host_cores)
        == (options.seed, options.host_memory, options.host_cores)
    )
    assert "jit" not in base.settings
    jit = next(row for row in prepared_study.settings if row.name == "jit")
    assert (jit.value, jit.why) == ("base: the default; odd: off", "differs between the variants")
    assert "max_wal_senders" in {row.name for row in prepared_study.settings}
    assert len([choice for choice in prepared_study.defaults_chosen if choice.startswith("PostgreSQL")]) == 1, (
        "what holds for all is said once"
    )


def test_variants_that_say_the_same_in_other_words_are_refused():
    with pytest.raises(UsageError, match="variants 'a' and 'b' are identical: work_mem is 1GB in 'a' and 1024MB in 'b', which is "):
        prepared(variant=("a:work_mem=1GB", "b:work_mem=1024MB"), clients=(1,))


def test_variants_are_logged_alike_however_their_trial_went(monkeypatch):
    shares = iter([1.0, 0.2])
    monkeypatch.setattr("pgherd.prepare.load.sampling", lambda *inputs, **named: next(shares))
    options = prepared(variant=("a:jit=off", "b:jit=on")).options
    assert [variant.options.sampling for variant in options.variants] == [0.2, 0.2] and options.sampling == 0.2


def test_one_variant_alone_is_held_against_the_request_as_it_is():
    options = prepared(variant=("off:jit=off",), clients=(1, 2)).options
    assert [variant.name for variant in options.variants] == ["base", "off"]
    assert "jit" not in options.variants[0].options.settings


def test_variants_with_fewer_cpus_are_measured_with_the_same_clients():
    result = prepared(variant=("whole", "part:vcpus=1"), runtime="process").options
    assert {1, 2, 3, 4} <= set(result.clients)
    assert result.clients[-1] <= result.max_clients
    assert result.time_budget > sum(trial.seconds() for trial in planned(result))


def test_what_versions_differ_in_by_themselves_is_told(monkeypatch):
    request = {}

    def differences(node, baseline, others, **extra):
        request.update(extra)
        return {name: (VersionDifference("io_method", "–", "worker"),) for name in others}

    monkeypatch.setattr(servers, "differences", differences)
    prepared_study = prepared(variant=("old", "new:jit=off"), clients=(1, 2))
    assert "Defaults that differ between versions: io_method is – in old, worker in new." in prepared_study.defaults_chosen
    assert "jit" in request["settings"], "what is set differs in no default"


def test_variants_with_fewer_cpus_have_databases_of_the_same_scale(monkeypatch):
    monkeypatch.setattr(module, "choose_clients", lambda vcpus, **_: (1, round(20 * vcpus)))
    asked = {"workload": "tpcb-like", "runtime": "process", "host_cores": 2}
    variants = prepared(**asked, variant=("whole", "part:vcpus=1")).options.variants
    assert [variant.options.scale for variant in variants] == [80, 80]
    given = prepared(**asked, variant=("whole", "part:vcpus=1,scale=40")).options.variants
    assert [variant.options.scale for variant in given] == [80, 40], "as the user sets it"


def test_devices_that_any_variant_formats_are_typed_by_the_user(monkeypatch):
    complete = module._server
    devices = iter([(), ("/dev/sdz",)])
    monkeypatch.setattr(module, "_server", lambda *inputs: replace(complete(*inputs), typed=next(devices)))
    assert prepared(variant=("a", "b:jit=off"), clients=(1, 2)).typed == ("/dev/sdz",)


@pytest.mark.parametrize(
    ("requested", "error", "message"),
    [
        ({"clients": (0, 1)}, UsageError, "--clients 0: the minimum is 1"),
        ({"clients": (1, 2), "threads": 8}, UsageError, "--threads 8 is more than --clients 2"),
        ({"clients": (1, 8, 8), "slo": ("p99=10ms",)}, UsageError, "one number of clients, but --clients has 1, 8; give one of them"),
        (
            {"clients": (1, 100_000)},
            UsageError,
            "a server with 100000 clients .* needs .*; lower --clients or --scale, or raise --host-memory",
        ),
        ({"scale": 100_000}, PgherdError, "a server with 1 client that holds a database of .*; lower --scale, or raise"),
        ({"rate": 5.0}, ValidationError, "scaling measures the maximum throughput of each number of clients; leave the rate out"),
        ({"variant": ("a", "b:rate=5")}, UsageError, "variant 'b': 'rate': .*scaling measures the maximum throughput"),
        ({"variant": ("base:jit=off",)}, UsageError, "the name 'base' occurs twice"),
        ({"variant": ("a", "b:start-state=fresh")}, UsageError, "'start-state' cannot differ between variants"),
        ({"variant": ("a", "a:jit=off")}, UsageError, "'a' occurs twice"),
        ({"variant": ("a", "b:pg-bin=/nonexistent")}, UsageError, "variant 'b': /nonexistent"),
        ({"variant": ("a", "b:work_mem=much")}, UsageError, "variant 'b': .*work_mem"),
        ({"variant": ("a", "b:port=99")}, UsageError, "variant 'b': --set port: pgherd sets it itself"),
        ({"variant": ("a", "b:seed=3")}, UsageError, "'seed' cannot differ between variants"),
        ({"variant": ("a", "b:trace-io=true")}, UsageError, "'trace-io' cannot differ between variants"),
        ({"variant": ("a", "b:runtime=vm,vm-memory-policy=static")}, UsageError, "'vm-memory-policy' cannot differ between variants"),
        ({"set": ("nonsense=1",)}, UsageError, 'unrecognized configuration parameter "nonsense"'),
        ({"vcpus": 4096}, UsageError, "--vcpus 4096 is more than the"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(requested, error, message):
    with pytest.raises(error, match=message):
        prepared(**requested)
