"""Completing a mix of tenants for this host, and what its file may not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.prepare import servers
from pgherd.prepare.prepared_study import keep_inputs
from pgherd.studies.density.options import DensityOptions, DensityRequest
from pgherd.studies.density.prepare import plan_lines, prepare
from pgherd.studies.density.propose import propose
from pgherd.studies.density.tenant_mix import class_of
from pgherd.studies.density.tenants import reference_seconds

pytestmark = pytest.mark.usefixtures("own_directories")

SMALL = "{name: small, share: 0.75, vcpus: 0.25, memory: 128MB, scale: 1, rate: 40, slo: p95=50ms}"
IDLE = "{name: idle, count: 3, vcpus: 0.25, memory: 128MB, scale: 1, activity: idle}"
BIG = "{name: big, share: 0.25, vcpus: 1, memory: 256MB, scale: 2, clients: 4}"


@pytest.fixture
def prepared(monkeypatch, tmp_path):
    monkeypatch.setattr(servers.settings_validation, "validate", lambda *_: None)  # tested elsewhere, and slow

    def run(*classes: str, text: str = "", **requested):
        file = tmp_path / "tenants.yaml"
        file.write_text(text or "classes:\n" + "".join(f"  - {one}\n" for one in classes))
        defaults = {"host_cores": 1.0, "host_memory": "2GB", "seed": 1}
        try:
            return prepare(LocalNode(), DensityRequest.model_validate({**defaults, **requested, "tenants": str(file)}), dry=True)
        except CapabilityError as error:
            pytest.skip(str(error))

    return run


def test_a_mix_is_completed(prepared):
    found = prepared(SMALL, BIG)
    small, big = found.options.tenants
    assert (small.vcpus, small.container_memory, small.scale, small.rate) == (0.25, 128 * 2**20, 1, 40)
    assert (big.vcpus, big.container_memory, big.scale, big.clients, big.rate) == (1, 256 * 2**20, 2, 4, None)
    assert small.objectives[0].name == "p95" and big.objectives == ()
    assert small.settings["shared_buffers"] != big.settings["shared_buffers"]
    assert found.options.vcpus == 0.4375 and found.options.duration == 5.0, "p95 at 40 tps needs 5 s"
    # 2 GB hold 10 tenants of 128 MB and 3 of 256 MB.
    assert found.options.databases == tuple(range(1, 14)) and found.options.max_databases_in_memory == 13
    assert found.memory == 2**31
    again = DensityOptions.model_validate_json(found.options.model_dump_json())
    assert again == found.options and propose(again, []) == propose(found.options, []), "as a resumed run reads them"
    lines = plan_lines(found.options, ())
    assert lines[0] == f"Class small, 75 % of the tenants: 0.25 vCPU, 128 MB; select-only of scale 1, {small.clients} clients."
    assert lines[3] == "  On average, each has to keep 85 % of its throughput alone."
    assert not any("1 to 1 databases" in text for text in found.defaults_chosen)
    assert {class_of(address) for trial in propose(found.options, []).trials for address in trial.phases[0].loads} == {"small", "big"}


def test_a_runtime_without_memory_limits_is_refused_for_the_class(tmp_path):
    file = tmp_path / "tenants.yaml"
    file.write_text(f"classes:\n  - {SMALL}\n  - {BIG}\n")
    with pytest.raises(CapabilityError, match="class 'small': --memory needs the cgroup runtime"):
        prepare(LocalNode(), DensityRequest.model_validate({"tenants": str(file), "runtime": "process"}), dry=True)


def test_options_of_the_command_line_are_those_of_classes_without_them(prepared):
    classes = "{name: small, count: 3, scale: 1}", BIG.replace("share: 0.25", "count: 1")
    small, big = prepared(*classes, vcpus=0.5, memory="128MB", rate=30.0).options.tenants
    assert (small.vcpus, small.container_memory, small.rate, small.weight) == (0.5, 128 * 2**20, 30, 3)
    assert (big.vcpus, big.container_memory, big.rate, big.weight) == (1, 256 * 2**20, 30, 1)


def test_a_class_has_a_workload_or_scripts(prepared, tmp_path):
    script = tmp_path / "own.sql"
    script.write_text("SELECT 1;\n")
    own = BIG.replace("clients: 4", f"clients: 4, script: {script}, read_only: true")
    _, big = prepared(SMALL, own).options.tenants
    assert Path(big.scripts[0].source).name == "own.sql" and big.read_only
    kept, digests = keep_inputs(LocalNode(), prepared(SMALL, own).options, tmp_path / "inputs")
    assert kept.tenants[1].scripts[0].source == str(tmp_path / "inputs/big" / Path(kept.tenants[1].scripts[0].source).name)
    assert Path(kept.tenants[1].scripts[0].source).read_text() == "SELECT 1;\n" and len(digests) == 1
    small, _ = prepared(SMALL.replace("rate: 40", "rate: 40, workload: tpcb-like"), BIG, script=(str(script),)).options.tenants
    assert small.scripts[0].source == "builtin:tpcb-like"


def test_activity_makes_phases_and_states_the_time_of_a_day(prepared):
    day = [0.5] * 12 + [1] * 12
    found = prepared(
        SMALL.replace("}", f", activity: {{kind: daily, profile: {day}}}}}"), BIG.replace("}", ", rate: 20, activity: elastic}")
    )
    assert [one.activity.kind for one in found.options.tenants] == ["daily", "elastic"]
    assert found.options.duration == 2.0 and found.options.repeats == 3
    assert "A day of class small takes 48 s, and an hour is a phase." in found.defaults_chosen
    assert any("blocks of 24 phases of 2 s, 3 at the two deciding numbers" in text for text in found.defaults_chosen)
    assert found.options.time_budget > 2 * 3 * 24 * (2 + 1)
    assert plan_lines(found.options, ())[1] == "  Each has to keep p95 ≤ 50 ms at 40 tps. Activity: daily."


def test_all_phases_together_have_the_transactions_of_a_percentile(prepared):
    """p95 requires 200 transactions, and the class is on in four of eight phases. Alone it is always on, for long enough."""
    half = SMALL.replace("}", ", activity: {kind: on-off, duty: 0.5}}")
    short = prepared(half, BIG, duration="1.5s").options
    assert short.duration == 1.5 and reference_seconds(short.tenants[0], short.duration) == 5
    slow = half.replace("rate: 40", "rate: 5")
    with pytest.raises(UsageError, match="class 'small': --slo p95: a tenant logs 40 .* of 2 s, but p95 requires 200; give --duration 10s"):
        prepared(slow, BIG)
    longer = prepared(slow, BIG, duration="10s").options
    assert longer.duration == 10 and reference_seconds(longer.tenants[0], longer.duration) == 40


def test_idle_servers_alone_are_measured_at_one_number(prepared):
    found = prepared(IDLE, rate=30.0, slo=("p95=50ms",))
    (idle,) = found.options.tenants
    assert idle.idle and idle.rate is None and idle.objectives == (), "options of the command line that are for a load"
    assert (found.options.databases, found.options.repeats, found.options.duration) == ((8,), 3, 60)
    assert "8 idle servers at a time: 3 trials of 60 s, each followed by a first query of every server." in found.defaults_chosen
    assert plan_lines(found.options, ()) == ["Class idle, 100 % of the tenants: 0.25 vCPU, 128 MB; select-only of scale 1, idle."]
    assert prepared(IDLE, databases=(2, 4)).options.databases == (2, 4)
    assert prepared(IDLE, host_memory="500MB").options.databases == (3,), "as many as memory holds"


def test_idle_tenants_do_not_limit_the_search_by_their_vcpus(prepared):
    mixed = prepared(BIG.replace("share: 0.25", "count: 1"), IDLE, host_memory="8GB").options
    assert mixed.vcpus == 0.25 and max(mixed.databases) > max(prepared(BIG.replace("0.25", "1"), host_memory="8GB").options.databases)


@pytest.mark.parametrize(("name", "classes"), [("laptop.yaml", 2), ("day.yaml", 2), ("idle.yaml", 1)])
def test_the_examples_are_complete(prepared, name, classes):
    text = (Path(__file__).parents[3] / "scenarios/tenants" / name).read_text()
    assert len(prepared(text=text, host_cores=2.0, host_memory="4GB").options.tenants) == classes


def test_servers_start_as_the_most_demanding_class_needs(prepared):
    assert prepared(SMALL, BIG).options.start_state == "warm"
    orders = BIG.replace("memory: 256MB, scale: 2", "memory: 1GB, scale: 1, workload: orders")
    assert prepared(SMALL, orders, host_memory="4GB").options.start_state == "fresh"


def test_numbers_of_tenants_can_be_given(prepared):
    assert prepared(SMALL, BIG, databases=(4, 8)).options.databases == (1, 4, 8)
    assert prepared(SMALL, BIG, databases=(4, 8)).options.max_databases_in_memory == 13, "what memory holds of twice as many"
    assert prepared(SMALL, BIG, databases=(4,)).options.max_databases_in_memory == 8
    assert prepared(SMALL, BIG, host_memory="5GB").options.databases[-1] == 19, "no more than are tried"


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ((SMALL, BIG.replace("0.25", "0.5")), r"the shares of the classes sum to 1.25 and not to 1 \(small 0.75, big 0.5\)"),
        ((SMALL, BIG.replace("share: 0.25", "count: 2")), "class 'small' has share 0.75 and class 'big' has count 2; give all"),
        ((SMALL.replace("share: 0.75", "share: 0.75, count: 3"), BIG), "class 'small' has share 0.75 and count 3; give one of them"),
        ((SMALL.replace("share: 0.75, ", ""), BIG), "class 'small' has neither share nor count"),
        ((SMALL, BIG.replace("big", "small")), "class 'small' is both number 1 and number 2"),
        ((SMALL, BIG.replace("scale: 2", "scale: none")), "class 'big': 'scale': input should be a valid integer.*'none'"),
        ((SMALL, BIG.replace("clients", "client")), "class 'big': 'client' is not an option"),
        ((SMALL, BIG.replace("name: big", "name: Big!")), "class 'Big!': 'name': "),
        ((SMALL, BIG.replace("vcpus: 1, ", "")), "class 'big' has no vcpus; give them there, or --vcpus for all classes"),
        ((SMALL, BIG.replace("memory: 256MB, ", "")), "class 'big' has no memory; give it there, or --memory for all classes"),
        ((SMALL, BIG.replace("}", ", activity: elastic}")), "class 'big' has activity elastic, which multiplies a rate, and no rate"),
        ((IDLE.replace("}", ", rate: 3}"),), "class 'idle' is idle, so it has no rate; leave it out"),
        ((SMALL, BIG.replace("}", ", activity: {kind: on-off}}")), "class 'big': 'activity': activity on-off needs 'duty'"),
        ((SMALL, BIG.replace("vcpus: 1", "vcpus: 3")), "class 'big': --vcpus 3 is more than the 1 cores"),
        ((SMALL.replace("50ms", "50"), BIG), "class 'small': --slo p95=50: write a percentile and a limit with its unit"),
        ((SMALL.replace("0.75", "0.99"), BIG.replace("0.25", "0.01")), "class 'big' has a share of 0.01, so none of 1. tenants"),
        (("small",), "class number 1 is a mapping with 'name' and 'share', but it is 'small'"),
    ],
)
def test_a_wrong_class_is_named(prepared, classes, message):
    with pytest.raises(UsageError, match=message):
        prepared(*classes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a file of tenants is a mapping with 'classes' only, but it is list"),
        ("classes: []", r"'classes' is a list with at least one class, but it is \[\]"),
        ("classes: [{name: a}]\nmore: 1", "with 'classes' only, but it is classes, more"),
    ],
)
def test_a_wrong_file_is_refused(prepared, text, message):
    with pytest.raises(UsageError, match=message):
        prepared(text=text)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"soak": "1h"}, "--soak does not go with --tenants"),
        ({"runtime": "vm"}, "--runtime vm does not go with --tenants"),
        ({"dsn": "host=x"}, "--dsn does not go with --tenants"),
        ({"databases": (40,)}, "--databases 40: memory of 2 GB .--host-memory. holds 13 tenants of the mix"),
        ({"databases": (0, 4)}, "--databases 0: the minimum is 1"),
        ({"host_memory": "100MB"}, "class 'small': one database needs 128 MB, but the host's memory budget is 100 MB"),
    ],
)
def test_what_a_mix_cannot_have_is_refused(prepared, requested, message):
    with pytest.raises(UsageError, match=message):
        prepared(SMALL, BIG, **requested)
