from pgherd.host.cgroup_memory import Victim
from pgherd.model.result import MemoryKill
from pgherd.node.local import LocalNode
from pgherd.runner.deploy import memory_kills
from pgherd.runner.deploy.memory_kills import MemoryKills, told

KILL = MemoryKill(container="db1", processes=1, at=100.0)


def victim(at=99.0, group="/pgherd-x/db1", limited="/pgherd-x", pid=12):
    return Victim(at, "postgres", pid, group, limited)


def test_the_log_tells_who_when_and_at_whose_limit():
    assert told(KILL, [victim()]) == MemoryKill(container="db1", processes=1, at=99.0, names=("postgres (12)",), limit="budget")
    assert told(KILL, [victim(limited="/pgherd-x/db1")]).limit == "container"


def test_what_the_log_says_of_others_is_left_out():
    assert told(KILL, []) == KILL
    assert told(KILL, [victim(group="/pgherd-x/db2"), victim(at=150.0)]) == KILL


def test_no_more_names_than_were_counted():
    assert told(KILL, [victim(pid=1), victim(pid=2)]).names == ("postgres (1)",)


def test_a_trials_kills_are_what_its_groups_have_counted_since_it_began(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_kills.cgroup_memory, "victims", lambda node, since: [])
    events = tmp_path / "memory.events"
    events.write_text("oom 1\noom_kill 1\n")
    kills = MemoryKills(LocalNode())
    groups = {"db1": {"v2": str(tmp_path)}}
    kills.begin()
    assert [(one.container, one.processes) for one in kills.seen(groups)] == [("db1", 1)]
    kills.begin()
    assert kills.seen(groups) == ()
    events.write_text("oom 1\noom_kill 3\n")
    assert kills.look("db1", groups["db1"]) == 2
    assert [one.processes for one in kills.seen(groups)] == [2], "looked at before, and noted once"
    kills.forget("db1")
    kills.begin()
    assert [one.processes for one in kills.seen(groups)] == [3], "a new group counts from the start"
