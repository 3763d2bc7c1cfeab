import re
from dataclasses import replace

import pytest
from pydantic import ValidationError

from pgherd.model.capabilities import Capabilities
from pgherd.model.deployment import Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations, settings_validation
from pgherd.prepare import prepared_study
from pgherd.prepare.prepared_study import with_inputs
from pgherd.studies.compare import prepare as prepare_compare_module
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.compare.prepare import prepare
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.disk.options import DiskOptions, DiskVolume
from pgherd.studies.working_set.options import WorkingSetRequest
from pgherd.study.comparison import variants
from pgherd.study.comparison.tables import difference_rows

REFUSED_BY_POSTGRESQL = [
    ({"variant": ("x:work_mem=much",)}, 'variant \'x\': .* invalid value for parameter "work_mem": "much"'),
    ({"variant": ("x:nonsense=1",)}, "variant 'x': .* unrecognized configuration parameter \"nonsense\""),
]


VALIDATE = settings_validation.validate


@pytest.fixture(autouse=True)
def _without_validation(own_directories, monkeypatch):
    """PostgreSQL is asked for its opinion of settings only where that is what is tested: it makes a cluster for each answer."""
    monkeypatch.setattr(settings_validation, "validate", lambda *inputs: None)


def prepared(**requested):
    return prepare(LocalNode(), CompareRequest(**{"host_memory": "2GB", **requested}), dry=True)


def options_of(result, name):
    return result.options.variant(name).options


def test_one_variant_is_compared_with_the_request_without_changes():
    prepared_study = prepared(variant=("simple:protocol=simple",), seed=3, interleave="trials")
    options = prepared_study.options
    assert [variant.name for variant in options.variants] == ["base", "simple"] and options.baseline == "base"
    assert options_of(prepared_study, "base")["protocol"] == "prepared" and options_of(prepared_study, "simple")["protocol"] == "simple"
    assert options.seed == 3 and options.max_blocks >= 6 and not options.compare_findings
    trials = variants.block_trials(options, 0)
    assert {trial.state for trial in trials} == {"restarted"} and len(trials) == 3
    assert all(trial.deployment == trials[0].deployment for trial in trials)
    assert "Difference: protocol is prepared in base, simple in simple." in prepared_study.defaults_chosen
    assert sum("PostgreSQL" in choice and "from" in choice for choice in prepared_study.defaults_chosen) == 1, (
        "what goes for all variants is said once"
    )


def test_the_first_of_several_variants_is_the_baseline():
    prepared_study = prepared(variant=("big:shared_buffers=256MB", "small:shared_buffers=32MB", "plain"))
    assert prepared_study.options.baseline == "big" and prepared_study.options.other_variants == ("small", "plain")
    differing = prepared_study.settings[0]
    assert differing.name == "shared_buffers" and differing.why == "differs between the variants"
    assert differing.value.startswith("big: 256MB; small: 32MB; plain: ")
    assert prepared_study.options.time_budget > prepared(variant=("x:jit=off",)).options.time_budget


def test_the_rate_must_do_for_the_length_of_its_own_trials():
    """They last 5 s, and those of density, whose options these are, 9 s."""
    with pytest.raises(UsageError, match=r"variant 'base': --rate 1.5 is too low: .* in 5 s .*; give --rate 2 or more"):
        prepared(variant=("x:jit=off",), rate=1.5, interleave="trials")
    assert options_of(prepared(variant=("x:jit=off",), rate=2.0, interleave="trials"), "x")["rate"] == 2.0


def test_a_transaction_must_not_be_longer_than_the_trials(monkeypatch):
    prepare_of_density = prepared_study.prepare

    def slow(*inputs, **options):
        return replace(prepare_of_density(*inputs, **options), pace=6.0)

    monkeypatch.setattr(prepared_study, "prepare", slow)
    with pytest.raises(UsageError, match=r"takes 6 s with one client, longer than .* \(5 s\); give --duration 60s or more"):
        prepared(variant=("x:jit=off",))


def test_what_writes_begins_fresh_and_gets_longer_trials():
    reads, writes = (prepared(variant=("x:jit=off",), workload=name) for name in ("select-only", "tpcb-like"))
    assert {trial.state for trial in variants.block_trials(writes.options, 0)} == {"fresh"}
    assert options_of(writes, "x")["duration"] > options_of(reads, "x")["duration"]
    prepared_study = prepared(variant=("x:jit=off",), workload="tpcb-like", start_state="warm", duration="2s", warmup="1s")
    assert {(trial.state, trial.seconds()) for trial in variants.block_trials(prepared_study.options, 0)} == {("warm", 3.0)}


def test_external_servers_stay_warm_under_a_load_that_writes():
    plain = prepared_study.prepare(LocalNode(), "density", DensityRequest(databases=(1,), host_memory="2GB"), dry=True)
    request = CompareRequest(variant=("a", "b:protocol=simple"))

    def state(**options):
        changed = replace(plain, options=plain.options.model_copy(update={"read_only": False, **options}))
        return prepare_compare_module._state(request, {"a": changed, "b": changed})

    assert state() == "fresh" and state(dsn="host=elsewhere") == "warm"


def test_what_differs_in_more_than_settings_begins_fresh_where_arms_take_turns():
    prepared_study = prepared(variant=("a", "b:scale=2"), interleave="trials")
    assert {trial.state for trial in variants.block_trials(prepared_study.options, 0)} == {"fresh"}


def test_versions_are_compared_with_what_differs_by_itself():
    majors = sorted({item.major: item.bin for item in installations.find_all(LocalNode())}.items())
    if len(majors) < 2:
        pytest.skip("there is only one version of PostgreSQL here")
    (_, old_bin), (_, new_bin) = majors[0], majors[-1]
    prepared_study = prepared(variant=(f"old:pg-bin={old_bin}", f"new:pg-bin={new_bin}"))
    assert prepared_study.options.in_slices
    assert prepared_study.options.defaults and all(set(values) == {"old", "new"} for values in prepared_study.options.defaults.values())
    assert not {setting for variant in prepared_study.options.variants for setting in variant.options["settings"]} & set(
        prepared_study.options.defaults
    )
    assert any(choice.startswith("Defaults that differ between versions: ") for choice in prepared_study.defaults_chosen)
    assert not prepared(variant=("x:jit=off",)).options.defaults


def test_what_reads_stands_side_by_side_and_takes_turns():
    prepared_study = prepared(variant=("simple:protocol=simple",))
    (trial,) = variants.block_trials(prepared_study.options, 0)
    assert prepared_study.options.in_slices and prepared_study.options.max_blocks >= 25, "many blocks within the default budget"
    assert [container.name for _, container in trial.deployment.containers()] == ["base", "base-a-a", "simple"]
    assert trial.state == "restarted" and [load.sampling for load in trial.phases[0].loads.values()] == [0.3] * 3
    assert any(
        choice.startswith("Variants are interleaved in time slices: 3 servers run at once, base twice")
        for choice in prepared_study.defaults_chosen
    )
    assert prepared_study.memory <= prepared_study.environment.memory, "limits that nobody asked for are lowered until all fit"
    item = prepared(variant=("simple:protocol=simple",), interleave="trials")
    assert not item.options.in_slices and item.disk < prepared_study.disk


def test_order_entry_begins_every_trial_fresh():
    prepared_study = prepared(variant=("x:jit=off",), workload="orders", metric="nopm", host_memory="4GB")
    assert {trial.state for trial in variants.block_trials(prepared_study.options, 0)} == {"fresh"} and not prepared_study.options.in_slices


def test_limits_of_the_run():
    prepared_study = prepared(variant=("x:jit=off",), max_blocks=30, precision="1%", equivalence_margin="5%", threshold=("max_steal=0.5",))
    assert (
        prepared_study.options.max_blocks == 30
        and prepared_study.options.precision == 0.01
        and prepared_study.options.equivalence_margin == 0.05
    )
    assert prepared_study.thresholds.max_steal == 0.5 == prepared_study.options.thresholds.max_steal
    assert prepared_study.options.time_budget > 260, "who names blocks wants them run"
    assert prepared(variant=("x:jit=off",), max_blocks=30, time_budget="1m").options.time_budget == 60


def test_what_is_left_to_other_programs_is_said_where_something_is():
    def said(**requested):
        return [choice for choice in prepared(variant=("x:jit=off",), **requested).defaults_chosen if " vCPU of " in choice]

    assert said(host_cores=2) == ["1 vCPU of 2 for the server and its clients; other programs use the rest."]
    assert not said(host_cores=1), "it has all that the run may use"


def test_blocks_too_few_to_decide_anything_are_told_before_they_are_run():
    """Pairs all of one sign are rarer than 5 % from six on (2·2⁻⁶ = 0.031), than each of two variants' 2.5 % from seven (0.016)."""

    def warned(blocks, *variants):
        return [
            message
            for message in prepared(variant=variants, max_blocks=blocks).defaults_chosen
            if "cannot establish a difference" in message
        ]

    assert warned(5, "x:jit=off") == [
        "Warning: 5 blocks cannot establish a difference of any size: an error rate of 5 % requires at least 6; "
        "raise --max-blocks or --time-budget."
    ]
    assert not warned(6, "x:jit=off")
    (text,) = warned(6, "a", "b:jit=off", "c:geqo=off")
    assert "6 blocks cannot establish" in text and "2 variants share the error rate of 5 %, which requires at least 7" in text
    assert not warned(7, "a", "b:jit=off", "c:geqo=off")


def test_devices_that_any_arm_formats_are_typed_by_the_user(monkeypatch):
    complete = prepared_study.prepare
    devices = iter([("/dev/sdy",), ("/dev/sdz", "/dev/sdy")])
    monkeypatch.setattr(prepared_study, "prepare", lambda *inputs, **extra: replace(complete(*inputs, **extra), typed=next(devices)))
    assert prepared(variant=("x:jit=off",)).typed == ("/dev/sdy", "/dev/sdz")


def test_arms_are_logged_alike_however_their_trial_went(monkeypatch):
    shares = iter([1.0, 0.2] * 2)
    monkeypatch.setattr("pgherd.prepare.load.sampling", lambda *inputs, **named: next(shares))
    prepared_study = prepared(variant=("a:protocol=simple", "b:protocol=extended"), interleave="trials")
    assert options_of(prepared_study, "a")["sampling"] == options_of(prepared_study, "b")["sampling"] == 0.2
    assert [row["option"] for row in difference_rows(prepared_study.options)] == ["protocol"]
    with pytest.raises(UsageError, match="variants 'a' and 'b' are identical"):
        prepared(variant=("a", "b"))


def test_at_a_given_rate_latency_decides():
    assert prepared(variant=("x:jit=off",), rate=100).options.metric == "p95"
    assert prepared(variant=("x:jit=off",), rate=100, metric="p50").options.metric == "p50"
    assert prepared(variant=("x:jit=off",)).options.metric is None
    assert prepared(variant=("a:rate=100", "b:rate=100,jit=off")).options.metric == "p95"
    assert prepared(variant=("a:rate=100", "b:jit=off")).options.metric is None, "throughput differs"
    job = {"study": "density", "options": {"databases": [1], "scale": 1, "rate": 100}}
    other = {**job, "options": {**job["options"], "protocol": "simple"}}
    assert prepared(scenarios=[{"name": "a", **job}, {"name": "b", **other}]).options.metric == "p95"
    assert prepared(scenarios=[{"name": "a", **job}, {"name": "b", **other}], metric="throughput").options.metric == "throughput"
    disk = {"study": "disk", "options": {"tests": ["mix"], "rate_iops": "100,100"}}
    other = {**disk, "options": {**disk["options"], "rate_iops": "50,50"}}
    assert prepared(scenarios=[{"name": "a", **disk}, {"name": "b", **other}]).options.metric is None, "fio has no percentile of a mix"


@pytest.mark.parametrize(
    ("requested", "error", "message"),
    [
        ({}, UsageError, "nothing to compare; name variants, such as"),
        ({"variant": ("a", "b")}, UsageError, "variants 'a' and 'b' are identical: results would differ only by noise"),
        ({"variant": ("same:protocol=prepared",)}, UsageError, "variants 'base' and 'same' are identical"),
        (
            {"variant": ("a:work_mem=1GB", "b:work_mem=1024MB")},
            UsageError,
            "variants 'a' and 'b' are identical: work_mem is 1GB in 'a' and 1024MB in 'b', which is the same value; results would differ",
        ),
        (
            {"variant": ("a:jit=on,memory=1GB", "b:jit=true,memory=1024MB")},
            UsageError,
            "memory is 1GB in 'a' and 1024MB in 'b', jit is on in 'a' and true in 'b', which is the same value",
        ),
        ({"variant": ("x:jit=on",)}, UsageError, "jit is not given in 'base' and on in 'x', which is the same value"),
        ({"variant": ("a:jit=off", "a:jit=on")}, UsageError, "the name 'a' is used twice"),
        ({"variant": ("base:jit=off",)}, UsageError, "is used twice .the unchanged request has this name."),
        ({"variant": ("x:protocoll=simple",)}, UsageError, "'protocoll' .*did you mean protocol"),
        ({"variant": ("x:protocol=smoke",)}, UsageError, "variant 'x': 'protocol': .* but it is 'smoke'"),
        ({"variant": ("x:start-state=warm",)}, UsageError, "'start-state' cannot differ between variants"),
        ({"variant": ("x:databases=1",)}, UsageError, "'databases' cannot differ between variants"),
        ({"variant": ("x:trace-io=true",)}, UsageError, "'trace-io' cannot differ between variants: it is the same for all"),
        (
            {"variant": ("x:vm-memory-policy=virtio-balloon,vm-memory-min=256MB",), "runtime": "vm"},
            UsageError,
            "'vm-memory-policy' cannot differ between variants",
        ),
        ({"variant": ("x:jit",)}, UsageError, "'jit' is not key=value"),
        ({"variant": ("x:vcpus=4096",)}, UsageError, "variant 'x': --vcpus 4096 is more than the"),
        ({"variant": ("x:runtime=process,cpu-mode=quota",)}, CapabilityError, "--cpu-mode quota needs the cgroup runtime"),
        (
            {"variant": ("x:jit=off",), "metric": "tps"},
            UsageError,
            "no such metric; use one of throughput, nopm",
        ),
        ({"variant": ("x:jit=off",), "metric": "p95@databases=1"}, UsageError, "no such metric; use one of throughput"),
        ({"variant": ("x:jit=off",), "duration": "long"}, ValidationError, "'long' is not a duration"),
        ({"scenarios": [{"name": "a", "study": "database-size"}]}, UsageError, "only one scenario is given, 'a'"),
        ({"scenarios": [{"name": "a", "study": "database-size"}] * 2}, UsageError, "the name a is used twice"),
        (
            {"scenarios": [{"name": "a", "study": "database-size"}, {"name": "b", "study": "density"}]},
            UsageError,
            "different studies cannot be compared: a is database-size, b is density",
        ),
        ({"scenarios": [{"name": n, "study": "compare"} for n in "ab"]}, UsageError, "a comparison cannot be compared"),
        ({"scenarios": [{"name": n, "study": "hugepages"} for n in "ab"]}, UsageError, "cannot be compared, and hugepages is one"),
        (
            {"scenarios": [{"name": n, "study": "scaling", "options": {"variant": ["x:jit=off"]} if n == "b" else {}} for n in "ab"]},
            UsageError,
            "a comparison cannot be compared, and scenario 'b' is one, because it has variants; give a scenario for each",
        ),
        (
            {"scenarios": [{"name": n, "study": "density", "options": {"slo": ["p99=10ms"]} if n == "b" else {}} for n in "ab"]},
            UsageError,
            "scenario 'b' sets slo, whose trials depend on earlier results; run each scenario",
        ),
        (
            {"scenarios": [{"name": n, "study": "density", "options": {"tenants": "t.yaml"} if n == "b" else {}} for n in "ab"]},
            UsageError,
            "scenario 'b' sets tenants, whose trials depend on earlier results; run each scenario",
        ),
        (
            {"scenarios": [{"name": n, "study": "density", "options": {"soak": "2h"} if n == "b" else {}} for n in "ab"]},
            UsageError,
            "scenario 'b' sets soak, whose trials are parts of one long load; run each scenario",
        ),
        *(
            (
                {"scenarios": [{"name": n, "study": "working-set", "options": options} for n in "ab"]},
                UsageError,
                "scenario 'a' does not list the sizes of a single sweep .vary., whose trials depend on earlier results; run each scenario",
            )
            for options in ({}, {"vary": ["memory"]}, {"memory_sizes": ["100MB"], "shared_buffers_sizes": ["16MB"]})
        ),
        (
            {"scenarios": [{"name": n, "study": "io-profile", "options": {"compare_setting": "jit=on,off"}} for n in "ab"]},
            UsageError,
            "a comparison cannot be compared, and scenario 'a' is one",
        ),
        (
            {"scenarios": [{"name": n, "study": "isolation"} for n in "ab"]},
            UsageError,
            "isolation have no default metric, because their throughput includes the aggressor's; give --metric worst_p99_ratio",
        ),
        ({"scenarios": [{"name": n, "study": "none"} for n in "ab"]}, UsageError, "there is no study 'none'"),
        ({"scenarios": [{"name": n, "study": "database-size"} for n in "ab"]}, UsageError, "scenarios 'a' and 'b' are identical"),
        (
            {"scenarios": [{"name": n, "study": "database-size", "options": {"scale": [1]}} for n in "ab"]},
            UsageError,
            "scenario 'a': 'scale': extra inputs",
        ),
        (
            {"scenarios": [{"name": n, "study": "database-size"} for n in "ab"], "vcpus": 1},
            UsageError,
            "--vcpus applies only to --variant; set it",
        ),
        ({"scenarios": [{"name": n, "study": "database-size"} for n in "ab"], "variant": ("x",)}, UsageError, "do not go together"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_starts(requested, error, message):
    with pytest.raises(error, match=message):
        prepared(**requested)


@pytest.mark.parametrize(("requested", "message"), REFUSED_BY_POSTGRESQL)
def test_what_postgresql_refuses_is_said_in_its_words(requested, message, monkeypatch):
    monkeypatch.setattr(settings_validation, "validate", VALIDATE)
    with pytest.raises(UsageError, match=message):
        prepared(**requested)


def test_studies_are_arms_with_each_point_measured_once_per_block():
    job = {"name": "a", "study": "density", "options": {"databases": [1, 2], "scale": 1, "repeats": 4}}
    prepared_study = prepared(scenarios=[job, {**job, "name": "b", "options": {**job["options"], "workload": "simple-update"}}], seed=5)
    assert prepared_study.options.compare_findings
    assert [variant.options["seed"] for variant in prepared_study.options.variants] == [5, 5], "the order is the comparison's own matter"
    trials = variants.block_trials(prepared_study.options, 0)
    assert len(trials) == 6 and {trial.point["databases"] for trial in trials} == {1, 2}
    assert {trial.seconds() for trial in trials} == {10.0}, "a scenario says how long its trials are"
    sizes = [{"name": name, "study": "database-size", "options": {"scales": [scale]}} for name, scale in (("a", 1), ("b", 2))]
    assert len(variants.block_trials(prepared(scenarios=sizes).options, 0)) == 3


def test_listed_sizes_of_one_sweep_are_blocks():
    assert prepare_compare_module._not_in_blocks(WorkingSetRequest(vary=("memory",), memory_sizes=("100MB", "200MB"))) == ""


def test_scenarios_of_isolation_are_compared_by_a_given_finding():
    job = {"study": "isolation", "options": {"runtime": "process", "schemes": ["shared-server"], "aggressors": ["cpu"], "vcpus": 0.5}}
    job["options"] |= {"scale": 1, "host_cores": 1}
    slow = {**job["options"], "rate": 90, "duration": "20s"}
    options = prepared(scenarios=[{"name": "a", **job}, {**job, "name": "b", "options": slow}], metric="worst_p99_ratio").options
    assert options.metric == "worst_p99_ratio" and len(variants.block_trials(options, 0)) == 6


def test_watched_servers_are_arms_with_their_loads_logged_alike(monkeypatch, tmp_path):
    """The storage study's options hold those of its server: what goes for variants goes for that."""
    scripts = {}
    for name in "ab":
        (tmp_path / name).mkdir()
        scripts[name] = tmp_path / name / "same.sql"
        scripts[name].write_text(f"SELECT '{name}';\n")
    shares = iter([1.0, 0.2] * 2)
    monkeypatch.setattr("pgherd.prepare.load.sampling", lambda *requested, **named: next(shares))
    job = {"study": "io-profile", "options": {"scale": 1, "duration": "40s", "clients": 2}}
    more = {**job["options"], "clients": 3, "time_budget": "5m"}
    prepared_study = prepared(scenarios=[{"name": "a", **job}, {"name": "b", "study": "io-profile", "options": more}])
    assert len(variants.block_trials(prepared_study.options, 0)) == 3
    assert {variants.study_with_options(variant)[1].of("db01")["sampling"] for variant in prepared_study.options.variants} == {0.2}
    assert [row["option"] for row in difference_rows(prepared_study.options) if row["option"] != "settings.max_connections"] == ["clients"]
    own = [
        {"name": name, "study": "io-profile", "options": {**job["options"], "script": [str(script)]}} for name, script in scripts.items()
    ]
    monkeypatch.setattr("pgherd.prepare.load.sampling", lambda *given, **named: 1.0)
    inputs = with_inputs(LocalNode(), prepared(scenarios=own).options, tmp_path / "run" / "inputs")
    for variant in inputs.variants:
        with open(variants.study_with_options(variant)[1].of("db01")["scripts"][0]["source"]) as file:
            assert file.read() == f"SELECT '{variant.name}';\n"


@pytest.fixture
def hypervisor(monkeypatch):
    """Guests can be had, whatever there is here."""
    able = Capabilities(available=True, memory_limit=True, note="pretended")
    monkeypatch.setattr("pgherd.runtimes.vm.runtime.VmRuntime.capabilities", lambda self: able)
    monkeypatch.setattr("pgherd.prepare.guests.find_hypervisor", lambda *inputs, dry: (None, None))
    monkeypatch.setattr("pgherd.prepare.guests.describe_guests", lambda *requested: "Guests run.")


def _scenarios(**options):
    common = {"databases": [1], "scale": 1, "vcpus": 1}
    return [{"name": name, "study": "density", "options": {**common, **own}} for name, own in options.items()]


@pytest.mark.usefixtures("hypervisor")
def test_guests_of_all_arms_share_memory_by_one_policy():
    """A run has one: a variant's own would be reported and never run."""
    guest, balloons = {"runtime": "vm", "memory": "512MB"}, {"vm_memory_policy": "virtio-balloon", "vm_memory_min": "256MB"}
    with pytest.raises(
        UsageError, match=r"static \(vm_idle_tax 0.75\) in 'a' and vm_memory_policy virtio-balloon \(vm_idle_tax 0.75\) in 'b'"
    ):
        prepared(scenarios=_scenarios(a=guest, b={**guest, **balloons}))
    with pytest.raises(UsageError, match=r"\(vm_idle_tax 0.75\) in 'a' and .* \(vm_idle_tax 0\) in 'b'"):
        prepared(scenarios=_scenarios(a={**guest, **balloons}, b={**guest, **balloons, "vm_idle_tax": 0}))
    prepared_study = prepared(scenarios=_scenarios(a={"runtime": "process"}, b={**guest, **balloons}))
    assert prepared_study.environment.vm_memory_policy.policy == "virtio-balloon", "though the baseline has no guests"


def test_the_users_files_of_every_arm_become_part_of_the_run(tmp_path):
    files = []
    for name, text in (("a", "SELECT 1;\n"), ("b", "SELECT 2;\n")):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "same.sql").write_text(text)
        files.append(directory / "same.sql")
    prepared_study = prepared(variant=(f"a:script={files[0]}", f"b:script={files[1]}"), scale=1)
    inputs = with_inputs(LocalNode(), prepared_study.options, tmp_path / "run" / "inputs")
    for file in files:
        file.unlink()
    sources = {variant.name: variant.options["scripts"][0]["source"] for variant in inputs.variants}
    texts = {}
    for name, source in sources.items():
        with open(source) as file:
            texts[name] = file.read()
    assert texts == {"a": "SELECT 1;\n", "b": "SELECT 2;\n"}
    loads = [load for trial in variants.block_trials(inputs, 0) for phase in trial.phases for load in phase.loads.values()]
    assert {script.source for load in loads for script in load.scripts} == set(sources.values())


def test_arms_with_the_same_files_do_not_differ_in_them(tmp_path):
    (tmp_path / "mine.sql").write_text("SELECT 1;\n")
    (tmp_path / "other.sql").write_text("SELECT 2;\n")
    request = (f"a:jit=off,script={tmp_path}/mine.sql", f"b:script={tmp_path}/mine.sql", f"c:script={tmp_path}/other.sql")
    inputs = with_inputs(LocalNode(), prepared(variant=request, scale=1).options, tmp_path / "run" / "inputs")
    sources = [variant.options["scripts"][0]["source"] for variant in inputs.variants]
    assert sources[0] == sources[1] != sources[2]
    assert "scripts" not in {row["option"] for row in difference_rows(inputs.model_copy(update={"variants": inputs.variants[:2]}))}


def test_scenarios_have_the_same_budget_and_do_not_differ_by_what_was_free(monkeypatch):
    free = iter((8e9, 7e9, 6e9, 5e9, 4e9, 3e9, 2e9, 1e9))
    monkeypatch.setattr(LocalNode, "read", _with_free_memory(LocalNode.read, free))
    job = {"name": "a", "study": "density", "options": {"databases": [1], "scale": 1, "memory": "1GB"}}
    request = {"scenarios": [job, {**job, "name": "b"}], "max_blocks": 1}
    with pytest.raises(UsageError, match="'a' and 'b' are identical"):
        prepare(LocalNode(), CompareRequest(**request), dry=True)


def _with_free_memory(read, free):
    """Every look at /proc/meminfo finds less."""

    def changed(self, path):
        data = read(self, path)
        if path != "/proc/meminfo":
            return data
        return re.sub(rb"MemAvailable: +[0-9]+ kB", b"MemAvailable: %d kB" % (next(free) // 1024), data)

    return changed


def test_a_disk_variant_measures_each_test_once_and_not_twice_the_depth():
    volume = DiskVolume(volume=Volume(name="disk0", path="/mnt"), size=2**30)
    options = prepare_compare_module._measured_once(
        CompareRequest(), DiskOptions(volumes=(volume,), host_cores=1, memory=2**30), "warm", False
    )
    assert (options.repeats, options.double_iodepth) == (1, False)
