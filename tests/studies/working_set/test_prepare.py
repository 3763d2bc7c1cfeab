"""Completing a working-set request for this host."""

import pytest
from pydantic import ValidationError

from pgherd.model.capabilities import Capabilities
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Swap
from pgherd.node.local import LocalNode
from pgherd.prepare import hosts
from pgherd.runtimes.vm.hypervisor import OVERHEAD
from pgherd.studies.working_set.options import GUEST_SYSTEM_MB, WorkingSetRequest
from pgherd.studies.working_set.prepare import prepare

pytestmark = pytest.mark.usefixtures("own_directories")


def prepared(**requested):
    try:
        return prepare(LocalNode(), WorkingSetRequest(**requested), dry=True)
    except CapabilityError as error:
        pytest.skip(f"memory cannot be limited here: {error}")


def test_a_plain_request():
    prepared_study = prepared(host_memory="2GB")
    options = prepared_study.options
    assert options.clients == (30, 2) and options.vary == ("memory", "shared-buffers")
    assert options.workload == "random-block" and options.read_only and options.start_state == "restarted"
    assert options.shared_buffers == pytest.approx(options.database_size / 2, abs=1)
    assert options.memory_sizes[0] > options.shared_buffers and options.memory_sizes[-1] > options.shared_buffers + options.database_size
    assert any(0.45 <= options.shared_buffers / size <= 0.55 for size in options.memory_sizes), "the dip is looked for"
    assert options.shared_buffers_sizes[0] < options.database_size / 4 and options.shared_buffers_sizes[-1] > options.database_size
    assert options.refine and options.extra_memory is None
    assert options.time_budget <= 270, "a default run ends within five minutes"
    assert prepared_study.study == "working-set"
    assert any("swap" in choice.lower() for choice in prepared_study.defaults_chosen)


def test_swap_is_made_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(hosts.host_swap, "check", lambda node, swap: None)
    prepared_study = prepared(host_memory="2GB", scale=32, swap="file", memory_sizes=("200MB", "100MB"), vary=("memory",))
    assert prepared_study.options.swap == prepared_study.environment.swap
    assert prepared_study.environment.swap.kind == "file" and prepared_study.environment.swap.size >= 200 << 20
    (change,) = prepared_study.confirm
    assert change.startswith("a swap file of ") and change in prepared_study.host_changes
    assert not any("No swap" in choice for choice in prepared_study.defaults_chosen)


@pytest.mark.parametrize(("size", "swap", "warned"), [("24MB", "file", True), ("24MB", "none", False), ("48MB", "file", False)])
def test_with_swap_containers_too_small_to_be_warmed_are_told(monkeypatch, size, swap, warned):
    """The database of 32 MB is a little larger on disk: so much is read into buffers of 64 MB, and no more."""
    monkeypatch.setattr(hosts.host_swap, "check", lambda node, swap: None)
    prepared_study = prepared(
        host_memory="2GB", scale=32, shared_buffers="64MB", swap=swap, memory_sizes=(size,), vary=("memory",), clients=(2,), warmup="1s"
    )
    assert any(message.startswith("Warning: 24 MB of memory is less than the") for message in prepared_study.defaults_chosen) is warned


@pytest.mark.parametrize(
    ("requested", "warned"),
    [
        ({"shared_buffers": "64MB"}, True),
        ({"shared_buffers": "16MB"}, False),
        ({"shared_buffers": "64MB", "memory_sizes": ("24MB", "128MB")}, False),
        ({"shared_buffers": "64MB", "vary": ("shared-buffers",)}, False),
    ],
)
def test_shared_buffers_that_hold_the_database_are_warned_of(requested, warned):
    """In a container smaller than the database, memory still has an effect."""
    choices = prepared(host_memory="2GB", scale=32, **{"vary": ("memory",), **requested}).defaults_chosen
    assert any("so that the curve of container memory is flat" in choice for choice in choices) is warned


def test_the_hosts_swap_is_used_unless_something_else_is_said():
    assert prepared(host_memory="2GB", scale=32).environment.swap is None
    assert prepared(host_memory="2GB", scale=32, swap="none").environment.swap == Swap(kind="none"), "nor may they use the host's"
    with pytest.raises(UsageError, match="--swap-size 1GB is set, but the run creates no swap"):
        prepared(host_memory="2GB", scale=32, swap_size="1GB")


def test_sizes_as_asked_and_no_others():
    options = prepared(memory_sizes=("200MB", "100MB", "0.5GB"), host_memory="2GB", vary=("memory",), scale=32).options
    assert options.memory_sizes == (100, 200, 512) and options.shared_buffers_sizes == () and not options.refine


def test_the_memory_sweep_is_first_in_any_order():
    assert prepared(vary=("shared-buffers", "memory"), host_memory="2GB", scale=32).options.vary == ("memory", "shared-buffers")


def test_containers_of_the_second_sweep_fit_with_their_extra_memory():
    prepared_study = prepared(extra_memory="1900MB", host_memory="2GB", scale=128)
    options = prepared_study.options
    assert options.shared_buffers_sizes[-1] + 1900 == options.max_container == prepared_study.memory >> 20
    assert len(options.shared_buffers_sizes) == len(prepared(host_memory="2GB", scale=128).options.shared_buffers_sizes)


def test_huge_pages_of_a_file_are_refused(tmp_path):
    """No limit includes them, and each trial would have others."""
    file = tmp_path / "postgresql.conf"
    file.write_text("huge_pages = try\n")
    request = {"settings_from": str(file), "host_memory": "2GB", "scale": 32}
    with pytest.raises(UsageError, match="huge_pages is try, but .*; add --set huge_pages=off"):
        prepared(**request)
    assert prepared(**request, set=("huge_pages=off",)).options.settings["huge_pages"] == "off"


@pytest.fixture
def hypervisor(monkeypatch):
    """Guests can be had, and KVM runs them, whatever there is here."""
    monkeypatch.setattr("pgherd.runtimes.vm.hypervisor.overhead", lambda node, cache: OVERHEAD["kvm"])
    able = Capabilities(available=True, memory_limit=True, note="pretended")
    monkeypatch.setattr("pgherd.runtimes.vm.runtime.VmRuntime.capabilities", lambda self: able)


@pytest.mark.usefixtures("hypervisor")
class TestInGuests:
    def test_a_guest_is_booted_for_every_size(self):
        prepared_study = prepared(runtime="vm", host_memory="2GB", scale=64)
        options = prepared_study.options
        assert (options.runtime, options.start_state, options.min_container) == ("vm", "fresh", 160)
        assert options.vcpus == int(options.vcpus) and options.cpu_mode == "none"
        assert options.max_container == 2048 * 0.98 // 1 - 64, "the hypervisor's own memory is the host's too"
        assert options.memory_sizes[0] >= options.shared_buffers + GUEST_SYSTEM_MB
        assert any("Guests have no swap" in choice for choice in prepared_study.defaults_chosen)

    @pytest.mark.parametrize(
        ("requested", "text"),
        [
            ({"memory_sizes": ("150MB", "300MB")}, "--memory-sizes: a guest of 150 MB cannot boot, because it needs at least 160 MB"),
            ({"shared_buffers_sizes": ("16MB",), "extra_memory": "64MB"}, "--extra-memory: a guest of 80 MB cannot boot"),
            ({"start_state": "restarted"}, "would leave files in a guest's page cache"),
            ({"swap": "zram"}, "--swap zram applies only to the cgroup runtime"),
        ],
    )
    def test_what_cannot_be_asked(self, requested, text):
        with pytest.raises(UsageError, match=text):
            prepared(runtime="vm", host_memory="2GB", scale=64, **requested)


def test_what_writes_begins_afresh():
    assert prepared(update_percent=25, host_memory="2GB", scale=32).options.start_state == "fresh"
    assert prepared(workload="orders", scale=1, host_memory="2GB").options.start_state == "fresh"
    assert prepared(workload="select-only", host_memory="2GB").options.start_state == "restarted"


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        ({"set": ("shared_buffers=1GB",)}, "--shared-buffers"),
        ({"clients": (2, 2)}, "different numbers of clients"),
        ({"clients": (0,)}, "at least 1"),
        ({"host_memory": "100MB", "scale": 128}, "too small a range for a knee"),
        ({"memory_sizes": ("3GB",), "host_memory": "2GB"}, "more than the run may use"),
        ({"shared_buffers": "100kB"}, "a whole number of MB"),
        (
            {"shared_buffers_sizes": ("1GB",), "extra_memory": "1500MB", "host_memory": "2GB", "scale": 32},
            "--shared-buffers-sizes: 1024 MB with --extra-memory of 1500 MB is more than the run may use",
        ),
        ({"extra_memory": "2040MB", "host_memory": "2GB"}, "shared buffers from [0-9]+ MB with --extra-memory of 2040 MB are more than"),
    ],
)
def test_what_cannot_be_asked(requested, text):
    with pytest.raises(UsageError, match=text):
        prepared(**requested)


@pytest.mark.parametrize(
    "requested",
    [{"memory": "1GB"}, {"dsn": "dbname=x"}, {"rate": 5.0}, {"huge_pages": "2MB"}, {"start_state": "warm"}, {"extra_memory": "what"}],
)
def test_what_does_not_go_with_it(requested):
    with pytest.raises(ValidationError):
        WorkingSetRequest(**requested)


def test_other_runtimes_cannot_limit_memory():
    with pytest.raises(CapabilityError, match="needs the cgroup runtime"):
        prepare(LocalNode(), WorkingSetRequest(runtime="process"), dry=True)


def test_an_explicit_null_leaves_the_default_and_the_preset_as_they_are():
    options = prepared(warmup=None, repeats=None, host_memory="2GB", scale=32).options
    assert (options.warmup, options.repeats) == (1.5, 1)
    inputs = {"preset": "E7", "workload": "random-block", "scale": 32, "shared_buffers": "16MB", "host_memory": "2GB"}
    options = prepared(**inputs, warmup=None, repeats=None, clients=None).options
    assert (options.warmup, options.repeats, options.clients) == (60, 2, (30, 2))
