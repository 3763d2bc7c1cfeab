"""What guests need of their host, and what a trial leaves them."""

import pytest

from pgherd.model.deployment import GuestMemory
from pgherd.model.errors import UsageError
from pgherd.prepare import guests
from pgherd.runtimes.vm.acceleration import OVERHEAD
from pgherd.studies.consolidation import prepare_guests
from pgherd.studies.consolidation.options import ConsolidationOptions

GB, MB = 2**30, 2**20
STATIC, BALLOONS = GuestMemory(), GuestMemory(policy="guest-balloon")


def options(**changes):
    known = {"cores": 8, "memory": 11 * GB, "vcpus": 3, "share": 4 * GB, "runtime": "vm", "pg_bin": "/pg/bin", "pg_version": "18.6"}
    known |= {"workload": "orders", "scale": 30, "cpu_mode": "none"}
    found = ConsolidationOptions.model_validate({**known, **changes})
    return found.model_copy(update={"container_memory": found.share})


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
def test_the_published_rates_leave_enough(policy):
    prepare_guests.require_fit(options(rates=(0.0, 0.3, 0.55)), policy)


def test_minima_beyond_what_is_left_are_refused_where_balloons_move():
    tight = options(schemes=(3,), rates=(0.0, 0.75))
    prepare_guests.require_fit(tight, STATIC)
    with pytest.raises(
        UsageError, match=r"--overcommit 0.75 leaves 2 GB, of which 1.83 GB remain for the guests of scheme 3 .* minimum is 2 GB; lower"
    ):
        prepare_guests.require_fit(tight, BALLOONS)


def test_a_rate_that_leaves_the_hypervisors_too_little_is_refused():
    with pytest.raises(UsageError, match=r"--overcommit 0.9 leaves 102 MB, but the hypervisors of scheme 3 need 128 MB"):
        prepare_guests.require_fit(options(share=512 * MB, schemes=(3,), rates=(0.0, 0.9)), STATIC)
    with pytest.raises(UsageError, match=r"need 208 MB"):
        emulated = STATIC.model_copy(update={"overhead": OVERHEAD["tcg"]})
        prepare_guests.require_fit(options(share=512 * MB, schemes=(3,), rates=(0.0, 0.85)), emulated)


def test_a_guest_that_could_not_come_up_is_refused():
    with pytest.raises(UsageError, match="--memory 128 MB: a guest needs 160 MB to boot"):
        prepare_guests.require_fit(options(share=128 * MB), STATIC)


def test_what_becomes_of_a_guests_memory_is_said():
    given = options()
    assert prepare_guests.words(given, 3, BALLOONS) == "its balloon leaves it at least 1 GB of its 4 GB"
    assert prepare_guests.words(given, 1, BALLOONS) == "its balloon leaves it at least 2 GB of its 8 GB"
    assert prepare_guests.words(given, 3, STATIC).startswith("its balloon keeps its size")
    assert prepare_guests.words(given, 3, GuestMemory(policy="free-page-reporting")).startswith("it reports free pages")
