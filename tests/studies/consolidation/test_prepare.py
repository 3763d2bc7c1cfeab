"""Completing a consolidation request for this host."""

import re
import shutil
from pathlib import Path

import pytest

from pgherd.cli.main import run
from pgherd.host.facts import gather
from pgherd.model.capabilities import Capabilities
from pgherd.model.deployment import VmMemoryPolicy
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Swap
from pgherd.node.local import LocalNode
from pgherd.postgres import pg_balloon
from pgherd.prepare import databases, guests, hosts, servers, volumes
from pgherd.prepare.requests import read_scenario
from pgherd.runtimes.vm.hypervisor import OVERHEAD
from pgherd.studies.consolidation import prepare as module
from pgherd.studies.consolidation.options import E4_LAYOUTS, ConsolidationRequest
from pgherd.studies.consolidation.prepare import prepare
from pgherd.studies.consolidation.propose import planned

pytestmark = pytest.mark.usefixtures("own_directories")
ROOT = Path(__file__).parents[3]
GB = 2**30
MB = 2**20
OWN = 64 * MB
"""What each hypervisor is reckoned with."""


def prepared(**requested):
    defaults = {"host_memory": "2GB", "runtime": "process", "memory": None}
    if requested.get("runtime") == "cgroup":
        defaults["memory"] = "512MB"
    return prepare(LocalNode(), ConsolidationRequest(**{**defaults, **requested}), dry=True)


@pytest.fixture(autouse=True)
def _settings_are_taken(monkeypatch):
    """That PostgreSQL refuses what it does not take is tested elsewhere, and asking it each time takes long."""
    monkeypatch.setattr(servers.settings_validation, "validate", lambda *_: None)


@pytest.fixture
def plan_options(make_options):
    """A function that returns options with the memory, the times and the built-in scripts of a plan."""
    return lambda **changes: make_options(**{"host_memory": 11 * GB, "duration": 600, "warmup": 40, "scripts": (), **changes})


@pytest.fixture
def groups():
    """Skip where memory cannot be limited."""
    try:
        prepared(runtime="cgroup", schemes=("dedicated",))
    except CapabilityError as error:
        pytest.skip(str(error))


@pytest.fixture
def no_swap_looked_for(monkeypatch):
    """What can be had of swap is the host module's matter."""
    monkeypatch.setattr(hosts.host_swap, "check", lambda node, swap: None)


def test_a_plain_request_is_e4_in_small():
    prepared_study = prepared(schemes=("shared-server", "shared-container", "dedicated"))
    options = prepared_study.options
    assert (options.schemes, options.shared_buffers_percent, options.overcommit, options.repeats) == (E4_LAYOUTS[:3], (25, 75), (0.0,), 1)
    assert options.plan == ((30, 2, 30, 2), (2, 30, 2, 30))
    assert (options.workload, options.client_placement, options.start_state) == ("orders", "outside", "fresh")
    assert options.share == GB and options.scale == 6, "a database of three quarters of its memory, as 3 GB in 4 GB"
    assert int(options.settings["max_connections"]) >= 64 + 5, "old and new clients overlap at a border"
    assert prepared_study.study == "consolidation"
    assert any("not comparable with published TPC results" in choice for choice in prepared_study.defaults_chosen)


def test_memory_follows_from_warehouses_and_the_other_way_round():
    assert prepared(schemes=("dedicated",), scale=10, host_memory="6GB").options.share >= 10 * 113_600_000 / 0.75 * 0.95
    result = prepared(schemes=("dedicated",), workload="select-only").options
    assert 0.7 * GB < result.scale * 15.6 * MB < 0.8 * GB
    assert prepared(schemes=("dedicated",), workload="select-only", scale=2).options.scale == 2


@pytest.mark.parametrize(("workload", "choice"), [("orders", "Scale 6 (warehouses): about "), ("select-only", "Scale 50: about ")])
def test_a_chosen_scale_is_among_the_choices(workload, choice):
    assert any(line.startswith(choice) for line in prepared(schemes=("dedicated",), workload=workload).defaults_chosen)
    assert not any(line.startswith("Scale") for line in prepared(schemes=("dedicated",), workload=workload, scale=1).defaults_chosen)


def test_repeats_are_blocks():
    options = prepared(schemes=("dedicated",), repeats=3).options
    assert (options.repeats, options.repeats) == (3, 3)


def test_the_host_has_little_more_than_is_configured_unless_asked_for():
    prepared_study = prepared(schemes=("dedicated",), host_memory=None, scale=1)
    assert prepared_study.options.configured < prepared_study.options.host_memory <= prepared_study.options.configured * 11 / 8
    assert prepared_study.environment.memory == prepared_study.options.host_memory
    assert prepared(schemes=("dedicated",), scale=1).options.host_memory == 2 * GB


def test_the_budget_must_hold_what_is_configured():
    with pytest.raises(
        UsageError, match=r"3 databases of 832 MB are 2.44 GB of configured memory, more than the host's budget of 2 GB; .*--overcommit"
    ):
        prepared(databases=3, schemes=("shared-container",), runtime="process", scale=6)


def test_without_control_groups_memory_cannot_be_short():
    with pytest.raises(CapabilityError, match="--overcommit above 0 needs the cgroup runtime"):
        prepared(schemes=("dedicated",), overcommit=(0.3,))
    assert any("the memory of containers is not limited" in choice for choice in prepared(schemes=("dedicated",)).defaults_chosen)


@pytest.mark.parametrize(
    ("requested", "reported"),
    [
        ({"pattern": "weekly"}, "there is no pattern 'weekly'"),
        ({"shared_buffers_percent": (95,)}, "1 to 90 %"),
        ({"overcommit": (1.0,)}, "at least 0 and below 1"),
        ({"set": ("shared_buffers=1GB",)}, "give --shared-buffers-percent instead"),
        ({"set": ("huge_pages=try",), "schemes": ("dedicated",)}, "huge_pages is try, but .*; add --set huge_pages=off"),
        ({"pattern": "9,1/1,9", "busy_clients": 50}, "--busy-clients 50 needs a named pattern, but --pattern 9,1/1,9 lists clients"),
        ({"pattern": "9,1/1,9", "quiet_clients": 3}, "--quiet-clients 3 needs a named pattern"),
        (
            {"scale": 1_000_000, "host_memory": None, "databases": 2, "runtime": "process"},
            "configured memory, more than the host's budget",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(requested, reported):
    with pytest.raises(UsageError, match=reported):
        prepared(**requested)


def test_warehouses_that_do_not_fit_the_disk_are_refused(monkeypatch):
    monkeypatch.setattr(module, "disk_space", _full)
    with pytest.raises(UsageError, match="lower --databases or --scale"):
        prepared(schemes=("dedicated",))


def _full(workspace, requested, databases, size, *, lower, **named):
    raise UsageError(f"{databases} databases do not fit; lower {lower}")


def test_templates_count_on_the_disk(monkeypatch):
    requests = []
    real = module.disk_space
    monkeypatch.setattr(
        module,
        "disk_space",
        lambda *inputs, **named: requests.append((inputs[2], named["templates"], named["loaded"])) or real(*inputs, **named),
    )
    layouts_of_runs = (
        *(("dedicated",), ("shared-server",), ("shared-server", "dedicated")),
        ("dedicated", "shared-database", "shared-server"),
    )
    for layouts in layouts_of_runs:
        prepared(schemes=layouts)
    expected = [(2, 1, 0), (2, 2, 0), (2, 3, 0), (2, 5, 0)]
    assert requests == expected, "layouts of one server have a template each, of all databases or schemas"
    requests.clear()
    monkeypatch.setattr(databases.templates, "find", lambda *_: "found")
    for layouts in layouts_of_runs:
        prepared(schemes=layouts)
    assert requests == [(2, count, count) for _, count, _ in expected], "a second run has them already"


@pytest.mark.usefixtures("groups", "no_swap_looked_for")
class TestWithControlGroups:
    def test_containers_get_their_memory_and_a_rate_its_baseline(self):
        options = prepared(runtime="cgroup", schemes=("dedicated",), overcommit=(0.3,), shared_buffers_percent=(25,)).options
        assert options.container_memory == options.share == 512 * MB
        assert options.overcommit == (0.0, 0.3), "a rate is held against the undercommitted baseline"
        assert len(planned(options)) == 2

    def test_swap_is_made_where_memory_is_short_and_confirmed(self):
        prepared_study = prepared(runtime="cgroup", schemes=("dedicated",), overcommit=(0.3,), shared_buffers_percent=(25,))
        assert prepared_study.options.swap == Swap(kind="zram", size=GB) == prepared_study.environment.swap
        (change,) = prepared_study.confirm
        assert change.startswith("compressed swap in memory (zram) of 1 GB, switched on during the run")
        assert change in prepared_study.host_changes
        plain = prepared(runtime="cgroup", schemes=("dedicated",), shared_buffers_percent=(25,))
        assert plain.environment.swap == Swap(kind="none") and plain.confirm == ()

    def test_swap_as_asked(self):
        prepared_study = prepared(
            runtime="cgroup", schemes=("dedicated",), shared_buffers_percent=(25,), swap="file", swap_size="64MB", swap_dir="/mnt"
        )
        assert prepared_study.environment.swap == Swap(kind="file", size=64 * MB, path="/mnt")
        with pytest.raises(UsageError, match="--swap-size 64MB is set, but the run creates no swap"):
            prepared(runtime="cgroup", schemes=("dedicated",), swap="none", swap_size="64MB")

    def test_a_host_without_zram_goes_without_and_says_so(self, monkeypatch):
        def refuse(node, swap):
            raise CapabilityError("no module zram")

        monkeypatch.setattr(hosts.host_swap, "check", refuse)
        prepared_study = prepared(runtime="cgroup", schemes=("dedicated",), overcommit=(0.3,), shared_buffers_percent=(25,))
        assert prepared_study.environment.swap == Swap(kind="none")
        assert any("no module zram" in choice for choice in prepared_study.defaults_chosen)
        with pytest.raises(CapabilityError, match="no module zram"):
            prepared(runtime="cgroup", schemes=("dedicated",), overcommit=(0.3,), shared_buffers_percent=(25,), swap="zram")

    def test_buffers_that_cannot_leave_memory_are_warned_of(self):
        prepared_study = prepared(
            runtime="cgroup", schemes=("dedicated",), overcommit=(0.55,), shared_buffers_percent=(75,), swap="none", busy_clients=5
        )
        assert any("at 55% and 75 % buffers the kernel kills servers" in choice for choice in prepared_study.defaults_chosen)

    def test_the_safe_overcommitment_is_said_before_anything_starts(self):
        prepared_study = prepared(
            runtime="cgroup", schemes=("dedicated",), overcommit=(0.3,), shared_buffers_percent=(25,), working_set_size=("172MB", "144MB")
        )
        assert any(
            "316 MB in total leave 708 MB of 1 GB unused: overcommitment is safe up to 69%" in c for c in prepared_study.defaults_chosen
        )
        unknown = prepared(runtime="cgroup", schemes=("dedicated",), overcommit=(0.3,), shared_buffers_percent=(25,))
        assert any("the maximum safe overcommitment is not known" in choice for choice in unknown.defaults_chosen)

    def test_a_budget_below_the_working_sets_is_measured_with_a_warning(self):
        """A host's memory factor is from such levels, see host_capacity."""
        study = prepared(
            runtime="cgroup",
            schemes=("dedicated",),
            overcommit=(0.3, 0.8),
            shared_buffers_percent=(25,),
            working_set_size=("172MB", "144MB"),
        )
        (warning,) = [line for line in study.defaults_chosen if "working sets need" in line]
        assert warning.startswith("Warning: --overcommit 0.8 leaves 205 MB, and the working sets need 316 MB: above 69%")
        assert study.options.available_memory(0.8) < study.options.needed()

    def test_a_budget_in_which_nothing_could_run_is_refused(self):
        with pytest.raises(UsageError, match=r"--overcommit 0.99 leaves 10.2 MB of 1 GB, but 2 servers with 32 clients need"):
            prepared(runtime="cgroup", schemes=("dedicated",), overcommit=(0.99,), shared_buffers_percent=(25,))

    def test_a_disk_that_reads_far_ahead_is_warned_of_where_memory_is_short(self, monkeypatch):
        monkeypatch.setattr(module.hosts, "warn_of_read_ahead", lambda node, facts, location: [f"looked at {Path(location).is_dir()}"])
        assert (
            "looked at True"
            in prepared(runtime="cgroup", schemes=("dedicated",), overcommit=(0.3,), shared_buffers_percent=(25,)).defaults_chosen
        )
        assert "looked at True" not in prepared(runtime="cgroup", schemes=("dedicated",), shared_buffers_percent=(25,)).defaults_chosen

    def test_a_container_that_cannot_hold_its_server_is_refused(self):
        with pytest.raises(UsageError, match="layout dedicated with 75 % buffers and 200 clients needs at least"):
            prepared(runtime="cgroup", schemes=("dedicated",), shared_buffers_percent=(75,), memory="128MB", busy_clients=200)
        prepared_study = prepared(runtime="cgroup", schemes=("dedicated",), shared_buffers_percent=(75,))
        assert any("layout dedicated with 75 % buffers and 30 clients may need" in choice for choice in prepared_study.defaults_chosen)


@pytest.fixture
def hypervisor(monkeypatch):
    """Guests can be had, in control groups, whatever there is here."""
    able = Capabilities(available=True, memory_limit=True, note="pretended")
    monkeypatch.setattr("pgherd.runtimes.vm.runtime.VmRuntime.capabilities", lambda self: able)
    monkeypatch.setattr(module.guests, "in_groups", lambda *_: True)
    monkeypatch.setattr("pgherd.runtimes.vm.hypervisor.overhead", lambda node, cache: OWN)


def in_guests(**requested):
    return prepared(
        **{
            "runtime": "vm",
            "memory": "512MB",
            "vcpus": 1,
            "schemes": ("shared-server", "dedicated"),
            "shared_buffers_percent": (25,),
            "busy_clients": 4,
            **requested,
        }
    )


@pytest.mark.usefixtures("hypervisor", "no_swap_looked_for")
class TestInGuests:
    def test_guests_get_their_memory_and_how_they_share_it(self):
        result = in_guests(overcommit=(0.3,), vm_memory_policy="virtio-balloon")
        options = result.options
        assert (options.runtime, options.container_memory, options.cpu_mode, options.client_placement) == (
            "vm",
            512 * MB,
            "none",
            "outside",
        )
        assert result.environment.vm_memory_policy.policy == "virtio-balloon" and result.environment.swap.kind == "zram"
        assert any(change.startswith("virtual machines (QEMU)") for change in result.host_changes)

    def test_the_host_needs_room_for_their_hypervisors_too(self):
        assert in_guests(host_memory=None).options.host_memory >= module.budget_for(2, 512 * MB, OWN)
        with pytest.raises(UsageError, match=r"1 GB of configured memory and need 1.15 GB with their guests' hypervisors"):
            in_guests(host_memory="1GB")

    def test_that_room_is_worked_out_once(self, monkeypatch):
        """It is another once the hypervisor is known: the plan, the check of the budget and the run must have the same."""
        answers = iter((OWN, 104 * MB))
        monkeypatch.setattr("pgherd.runtimes.vm.hypervisor.overhead", lambda node, cache: next(answers))
        result = in_guests(memory=None, host_memory="1GB")
        assert result.environment.vm_memory_policy.overhead == OWN and next(answers) == 104 * MB
        assert any("estimated memory of each QEMU process without its guest's memory: 64 MB" in choice for choice in result.defaults_chosen)

    def test_a_default_memory_leaves_it(self):
        options = in_guests(memory=None, host_memory="1GB").options
        assert options.configured + 2 * OWN <= GB

    def test_minima_that_do_not_fit_are_refused(self):
        with pytest.raises(
            UsageError,
            match=r"--overcommit 0.7 leaves 307 MB, of which 237 MB remain for the guests of layout shared-server .* minimum is 256 MB",
        ):
            in_guests(overcommit=(0.7,), vm_memory_policy="virtio-balloon")

    def test_a_guests_own_system_is_counted(self):
        with pytest.raises(UsageError, match="layout dedicated with 75 % buffers and 4 clients needs at least"):
            in_guests(schemes=("dedicated",), shared_buffers_percent=(75,), memory="384MB")

    def test_without_swap_it_is_said_what_happens_to_guests(self):
        result = in_guests(overcommit=(0.3,), swap="none")
        assert any("the kernel kills guests" in choice for choice in result.defaults_chosen)

    def test_without_control_groups_memory_cannot_be_short(self, monkeypatch):
        monkeypatch.setattr(module.guests, "in_groups", lambda *_: False)
        assert in_guests().options.container_memory == 512 * MB, "a guest's memory is its own"
        with pytest.raises(CapabilityError, match="--overcommit above 0 needs control groups around the guests"):
            in_guests(overcommit=(0.3,))


def test_a_balloon_that_cannot_be_built_is_shown_with_the_reason(monkeypatch):
    monkeypatch.setattr(pg_balloon, "find_balloon", lambda *_: None)
    monkeypatch.setattr(pg_balloon, "missing_to_build", lambda *_: "make is missing: install make")
    options = prepared(schemes=("dedicated", "dedicated-balloon")).options
    assert options.unavailable == {"dedicated-balloon": "pg_balloon cannot be built: make is missing: install make"}
    assert options.runnable == ("dedicated",)
    with pytest.raises(CapabilityError, match="layout dedicated-balloon is not available: pg_balloon cannot be built: make is missing"):
        prepared(schemes=("dedicated-balloon",))


def test_a_balloon_that_is_there_is_loaded_by_layout_4_only(monkeypatch):
    library = pg_balloon.BalloonLibrary("/made", "18.6", 18, "abc")
    monkeypatch.setattr(pg_balloon, "find_balloon", lambda *_: library)
    monkeypatch.setattr(pg_balloon, "ensure_balloon", lambda *_, **__: library)
    options = prepared(schemes=("dedicated", "dedicated-balloon")).options
    assert options.balloon["shared_preload_libraries"] == "pg_balloon"
    assert options.balloon["pg_balloon.enabled"] == "on"
    assert options.balloon["dynamic_library_path"].startswith("/made")
    assert "shared_preload_libraries" not in options.settings
    assert options.settings["huge_pages"] == "off" and "huge_pages" not in options.balloon


def test_the_published_set_up_is_refused_on_a_small_host_and_can_be_changed():
    if gather(LocalNode()).cores >= 8:
        pytest.skip("this host is large enough for it")
    with pytest.raises(UsageError, match="--host-cores 8 is more than this host has"):
        prepare(LocalNode(), ConsolidationRequest(preset="E4"), dry=True)
    own = module._with_preset(ConsolidationRequest(preset="E5", host_cores=2, scale=1))
    assert (own.host_cores, own.scale, str(own.memory), own.vcpus) == (2, 1, "4GB", 3)
    assert own.overcommit == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55)


def test_a_list_of_clients_says_itself_who_is_busy():
    options = prepared(schemes=("dedicated",), pattern="9,1/1,8").options
    assert (options.busy_clients, options.quiet_clients, options.plan) == (9, 1, ((9, 1), (1, 8)))
    own = module._with_preset(ConsolidationRequest(preset="E4", pattern="9,1/1,8"))
    assert (own.busy_clients, own.quiet_clients, own.periods, own.vcpus) == (None, None, None, 3), (
        "the published clients are not meant then"
    )


def test_the_same_seed_gives_the_same_options():
    assert (
        prepared(schemes=("shared-server", "dedicated"), seed=5).options == prepared(schemes=("shared-server", "dedicated"), seed=5).options
    )


def _documented():
    """Return the commands of docs/howto/vm.md for E4 and E5, each with its scenario and duration."""
    text = (ROOT / "docs/howto/vm.md").read_text()
    return re.findall(r"^pgherd consolidation (--preset .*?)\s+# = pgherd run (\S+\.yaml), ([\d.]+) (hours|days)", text, re.MULTILINE)


@pytest.mark.usefixtures("hypervisor", "no_swap_looked_for")
def test_the_documented_commands_for_kvm_are_their_scenarios_and_take_as_long_as_is_said(monkeypatch, tmp_path, capsys):
    facts = gather(LocalNode())
    large = facts.model_copy(update={"cores": 8, "logical_cpus": 8, "memory": 16 * GB, "memory_available": 15 * GB})
    monkeypatch.setattr(databases, "gather", lambda node: large)
    monkeypatch.setattr(volumes.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 0, 2**40))
    monkeypatch.setattr(pg_balloon, "find_balloon", lambda *_: pg_balloon.BalloonLibrary("/made", "18.6", 18, "abc"))
    assert len(_documented()) == 2
    for text, scenario, number, unit in _documented():
        file = tmp_path / "s.yaml"
        assert run(["consolidation", *text.split(), "--write-scenario", str(file)]) == 0
        capsys.readouterr()
        requests = [ConsolidationRequest(**{**read_scenario(item).options, "seed": 1}) for item in (file, ROOT / scenario)]
        first, other = (prepare(LocalNode(), request, dry=True) for request in requests)
        assert first.options == other.options and first.environment == other.environment
        seconds = sum(trial.seconds() for trial in planned(first.options))
        assert seconds / (3600 if unit == "hours" else 86400) == pytest.approx(float(number), rel=0.1), "as the page says"


# ---- memory of guests

STATIC, BALLOONS = VmMemoryPolicy(), VmMemoryPolicy(policy="virtio-balloon")


@pytest.fixture
def guest_options(plan_options):
    """A function that returns options of guests, whose containers have their database's share of the memory."""

    def build(share=4 * GB, **changes):
        return plan_options(runtime="vm", cpu_mode="none", share=share, container_memory=share, **changes)

    return build


def test_a_budget_holds_guests_their_hypervisors_and_the_reserve():
    for own in OVERHEAD.values():
        need = guests.budget_for(2, 4 * GB, own)
        assert need == pytest.approx((8 * GB + 2 * own) / 0.98, abs=1)
        assert guests.largest_guest(2, need, own) == pytest.approx(4 * GB, abs=2)
        assert guests.largest_guest(40, GB, own) == 0, "there is not even room for the hypervisors"


def test_guests_run_in_control_groups_where_those_are_the_best_there_is(monkeypatch):
    class Best:
        name = "cgroup"

    monkeypatch.setattr(guests, "choose", lambda node, journal, facts, requested, suffix: (Best, requested))
    assert guests.in_groups(None, None, None)
    monkeypatch.setattr(Best, "name", "process")
    assert not guests.in_groups(None, None, None)


@pytest.mark.parametrize("policy", [STATIC, BALLOONS])
def test_the_published_rates_leave_enough(policy, guest_options):
    module.require_guests_fit(guest_options(overcommit=(0.0, 0.3, 0.55)), policy)


def test_minima_beyond_what_is_left_are_refused_where_balloons_move(guest_options):
    tight = guest_options(schemes=("dedicated",), overcommit=(0.0, 0.75))
    module.require_guests_fit(tight, STATIC)
    with pytest.raises(
        UsageError,
        match=r"--overcommit 0.75 leaves 2 GB, of which 1.83 GB remain for the guests of layout dedicated .* minimum is 2 GB; lower",
    ):
        module.require_guests_fit(tight, BALLOONS)


def test_a_rate_that_leaves_the_hypervisors_too_little_is_refused(guest_options):
    with pytest.raises(UsageError, match=r"--overcommit 0.9 leaves 102 MB, but the hypervisors of layout dedicated need 128 MB"):
        module.require_guests_fit(guest_options(share=512 * MB, schemes=("dedicated",), overcommit=(0.0, 0.9)), STATIC)
    with pytest.raises(UsageError, match=r"need 208 MB"):
        emulated = STATIC.model_copy(update={"overhead": OVERHEAD["tcg"]})
        module.require_guests_fit(guest_options(share=512 * MB, schemes=("dedicated",), overcommit=(0.0, 0.85)), emulated)


def test_a_guest_that_could_not_come_up_is_refused(guest_options):
    with pytest.raises(UsageError, match="--memory 128 MB: a guest needs 160 MB to boot"):
        module.require_guests_fit(guest_options(share=128 * MB), STATIC)


def test_what_becomes_of_a_guests_memory_is_said(guest_options):
    study_options = guest_options()
    assert module._memory_of_guest(study_options, "dedicated", BALLOONS) == "its balloon leaves it at least 1 GB of its 4 GB"
    assert module._memory_of_guest(study_options, "shared-server", BALLOONS) == "its balloon leaves it at least 2 GB of its 8 GB"
    assert module._memory_of_guest(study_options, "dedicated", STATIC).startswith("its balloon keeps its size")
    assert module._memory_of_guest(study_options, "dedicated", VmMemoryPolicy(policy="free-page-reporting")).startswith(
        "it reports free pages"
    )


# ---- dry run


def test_each_layout_has_a_line(plan_options):
    study_options = plan_options(overcommit=(0.0, 0.5), unavailable={"dedicated-balloon": "make is missing"})
    assert module.plan_lines(study_options, planned(study_options)) == [
        "Layout shared-server: 1 container (cgroup, 3 vCPU by quota, 8 GB), in each 1 server of PostgreSQL 18.6 with 2 databases; "
        "shared_buffers 2048MB, 6144MB.",
        "Layout shared-container: 1 container (cgroup, 3 vCPU by quota, 8 GB), in each 2 servers of PostgreSQL 18.6 with 1 database; "
        "shared_buffers 1024MB, 3072MB.",
        "Layout dedicated: 2 containers (cgroup, 3 vCPU by quota, 4 GB), in each 1 server of PostgreSQL 18.6 with 1 database; "
        "shared_buffers 1024MB, 3072MB.",
        "Layout dedicated-balloon is not available: make is missing.",
        "Memory: 8 GB configured, 11 GB on the host; available when overcommitted by 50 %: 4 GB.",
        "Load: orders of scale 30 in each database, clients outside the containers: 30,2,30,2/2,30,2,30 in periods of 10 min, "
        "each after 40 s of warm-up.",
    ]


def test_schemas_are_shown_as_such(plan_options):
    study_options = plan_options(schemes=("shared-database",))
    assert module.plan_lines(study_options, planned(study_options))[0].startswith(
        "Layout shared-database: 1 container (cgroup, 3 vCPU by quota, 8 GB), in each 1 server of PostgreSQL 18.6 with 2 schemas; shared_"
    )


def test_guests_are_shown_with_their_memory_and_what_a_balloon_leaves_them(plan_options):
    study_options = plan_options(runtime="vm", cpu_mode="none", schemes=("shared-server", "dedicated"), shared_buffers_percent=(25,))
    first, second, *_ = module.plan_lines(study_options, planned(study_options), VmMemoryPolicy(policy="virtio-balloon"))
    assert first.startswith("Layout shared-server: 1 guest (vm, 3 vCPU, 8 GB)")
    assert first.endswith("; memory of each guest: its balloon leaves it at least 2 GB of its 8 GB.")
    assert second.startswith("Layout dedicated: 2 guests (vm, 3 vCPU, 4 GB)")
    assert second.endswith("; memory of each guest: its balloon leaves it at least 1 GB of its 4 GB.")


def test_without_limits_that_is_said(plan_options):
    study_options = plan_options(runtime="process", container_memory=None, cpu_mode="none", schemes=("dedicated",))
    assert "2 containers (process)" in module.plan_lines(study_options, planned(study_options))[0]
    assert "assumed (no limit is enforced)" in module.plan_lines(study_options, planned(study_options))[1]
