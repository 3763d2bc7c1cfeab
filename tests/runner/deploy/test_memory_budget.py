import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.host.swap import ActiveSwap
from pgherd.metrics.sampler import SwapView
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Phase
from pgherd.model.run import RunEnvironment, Swap
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.runner.deploy import memory_budget as module
from pgherd.runner.deploy.memory_budget import MemoryBudget
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle

NODE, MB = LocalNode(), 2**20


class Groups:
    """A runtime that notes what is done with its host group."""

    def __init__(self):
        self.done = []
        self.refuses = False

    def change_budget(self, memory):
        if self.refuses:
            raise CapabilityError("more is in use")
        self.done.append(("limit", memory // MB))

    def empty(self):
        self.done.append(("empty",))

    def budget_groups(self):
        return {"memory": "/m/r"}

    def create(self, container):
        self.done.append(("create", container.name))
        return ContainerHandle(container.name, join=("/m/r/x/cgroup.procs",), groups={"memory": f"/m/r/{container.name}"})

    def destroy(self, name):
        self.done.append(("destroy", name))

    def withhold(self, memory):
        pass


class Held:
    pid, code = 77, None

    def __init__(self, finished):
        self.done = finished

    def signal(self, number):
        self.done.append(("signal", number))

    def poll(self):
        return self.code

    def wait(self, timeout):
        return -9


class Only:
    def __init__(self, runtime):
        self.runtime = runtime

    def get(self, name):
        return self.runtime


@pytest.fixture
def make(tmp_path, monkeypatch):
    """(swap, made) → (budget, the runtime's doings)."""
    journals = []

    def built(runtime="cgroup", swap=None, made=None):
        groups = Groups()
        monkeypatch.setattr(module.clones, "drop_cache", lambda node, paths: groups.done.append(("drop", *paths)))
        monkeypatch.setattr(
            module.locked_memory, "hold", lambda node, size, join, out: groups.done.append(("hold", size // MB)) or Held(groups.done)
        )
        journals.append(Journal.open(NODE, tmp_path / "state", "run"))
        around = RunEnvironment(runtime=runtime, cores=2, memory=800 * MB, swap=swap)
        places = (tmp_path / "work", tmp_path / "sockets", tmp_path / "cache")
        session = RunSession(NODE, gather(NODE), journals[-1], Only(groups), None, *places, environment=around, swap=made)
        return MemoryBudget(session), groups

    yield built
    for journal in journals:
        journal.close()


def trial(memory, staging="cgroup-limit"):
    host = Host(memory=memory and memory * MB, overcommit_by=staging, containers=(Container(name="a", runtime="cgroup"),))
    return Trial(point={"m": memory or 0}, deployment=Deployment(hosts=(host,)), phases=(Phase(),))


def test_the_runs_whole_budget_is_what_there_is(make):
    budget, _ = make()
    assert not budget.differs(trial(800)) and not budget.differs(trial(None))
    assert budget.differs(trial(500))
    assert not budget.tight


def test_less_memory_is_a_lower_limit_on_groups_that_were_emptied(make):
    budget, groups = make()
    budget.apply(trial(500), ["/data/a"])
    assert groups.done == [("drop", "/data/a"), ("empty",), ("limit", 500)]
    assert budget.tight and not budget.differs(trial(500)) and budget.differs(trial(800))
    budget.apply(trial(800), [])
    assert groups.done[-1] == ("limit", 800) and not budget.differs(trial(None))


def test_or_locked_memory_beside_the_containers(make):
    budget, groups = make()
    budget.apply(trial(500, "mlock"), [])
    assert groups.done[2:] == [("limit", 800), ("create", "locked-memory"), ("hold", 300)]
    (view,) = budget.views()
    assert (view.name, view.pids, view.groups) == ("locked-memory", [77], {"memory": "/m/r/locked-memory"})
    assert budget.differs(trial(500)), "staged in another way"
    budget.apply(trial(600, "mlock"), [])
    assert groups.done[-5:] == [("signal", 9), ("destroy", "locked-memory"), ("limit", 800), ("create", "locked-memory"), ("hold", 200)]
    budget.close()
    assert budget.views() == [] and groups.done[-1] == ("destroy", "locked-memory")
    budget.close()


def test_a_lock_that_was_refused_or_has_ended_is_made_again(make, monkeypatch):
    budget, groups = make()
    wanted = trial(500, "mlock")
    budget.apply(wanted, [])
    assert not budget.differs(wanted)

    def refuse(*_):
        raise CapabilityError("it is in use")

    with monkeypatch.context() as patch:
        patch.setattr(module.locked_memory, "hold", refuse)
        with pytest.raises(TrialError, match="300 MB of memory for all containers cannot be set: it is in use"):
            budget.apply(trial(300, "mlock"), [])
    assert budget.differs(wanted), "its lock ended for that of the next"
    budget.apply(wanted, [])
    assert groups.done[-1] == ("hold", 300) and not budget.differs(wanted)
    budget.check()
    budget._process.code = -9
    assert budget.differs(wanted)
    with pytest.raises(TrialError, match=r"the process that locks memory ended during the trial \(exit code -9"):
        budget.check()


def test_with_swap_of_its_own_memory_is_taken_away_once_the_servers_are_warm(make):
    budget, groups = make(swap=Swap(kind="zram", size=MB), made=ActiveSwap("/dev/zram1", 1, 1))
    short = trial(500).model_copy(update={"state": "fresh"})
    budget.apply(short, [])
    assert groups.done[-1] == ("limit", 800), "in too little memory warming hardly ends"
    assert budget.differs(trial(500)), "nothing has been taken away yet"
    budget.tighten()
    assert groups.done[-1] == ("limit", 500)
    assert budget.differs(short) and not budget.differs(trial(500)), "servers that are started again are warmed with the whole (A/A)"
    budget.tighten()
    assert groups.done[-1] == ("limit", 500), "once"
    budget.apply(trial(500, "mlock"), [])
    budget.tighten()
    assert groups.done[-4:] == [("limit", 800), ("limit", 800), ("create", "locked-memory"), ("hold", 300)]
    budget.apply(trial(800), [])
    budget.tighten()
    assert groups.done[-1] == ("limit", 800)


def test_a_trial_that_came_to_nothing_leaves_no_larger_budget_behind(make):
    budget, groups = make(swap=Swap(kind="zram", size=MB), made=ActiveSwap("/dev/zram1", 1, 1))
    budget.apply(trial(500), [])
    groups.refuses = True
    with pytest.raises(TrialError, match="500 MB of memory for all containers cannot be set"):
        budget.tighten()
    assert budget.differs(trial(500))


def test_what_is_locked_is_not_for_guests_to_share(make, monkeypatch):
    monkeypatch.setattr(Groups, "withhold", lambda self, memory: self.done.append(("withhold", memory // MB)))
    budget, groups = make(runtime="vm")
    budget.apply(trial(500, "mlock"), [])
    assert groups.done[-2:] == [("hold", 300), ("withhold", 300)]
    budget.apply(trial(600), [])
    assert groups.done[-3:] == [("destroy", "locked-memory"), ("withhold", 0), ("limit", 600)]


def test_servers_are_restarted_and_guests_booted_anew_before_memory_changes(make):
    budget, _ = make()

    def wanted(memory, state, runtime="cgroup"):
        host = Host(memory=memory * MB, containers=(Container(name="a", runtime=runtime),))
        return Trial(point={"m": memory}, state=state, deployment=Deployment(hosts=(host,)), phases=(Phase(),))

    assert [budget.state(wanted(800, state)) for state in ("warm", "restarted")] == ["warm", "restarted"]
    assert [budget.state(wanted(500, state)) for state in ("warm", "fresh")] == ["restarted", "fresh"]
    assert budget.state(wanted(500, "restarted", "vm")) == "fresh", "what a guest has been charged for stays with it while it runs"
    assert budget.state(wanted(800, "warm", "vm")) == "warm"


def test_more_than_the_run_has_is_refused(make):
    budget, _ = make()
    with pytest.raises(TrialError, match="requires 900 MB of memory, but the run has 800 MB"):
        budget.differs(trial(900))


def test_where_nothing_enforces_a_budget_more_is_no_matter(make):
    budget, _ = make(runtime="process")
    assert not budget.differs(trial(900)) and budget.differs(trial(500))


def test_what_the_kernel_refuses_ends_the_trial_only(make):
    budget, groups = make()
    groups.refuses = True
    with pytest.raises(TrialError, match="500 MB of memory for all containers cannot be set: more is in use"):
        budget.apply(trial(500), [])


def test_what_samplers_are_told(make):
    budget, _ = make(swap=Swap(kind="zram", size=MB), made=ActiveSwap("/dev/zram1", 1, 1))
    assert budget.tight, "the page cache matters where there is swap"
    assert budget.groups() == {"memory": "/m/r"} and budget.swap() == SwapView("/dev/zram1", 1)
    other, _ = make(runtime="process")
    assert other.groups() == {} and other.swap() is None
