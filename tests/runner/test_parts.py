from pgherd.model.deployment import Host
from pgherd.model.run import Surroundings
from pgherd.model.trial import Trial
from pgherd.runner.parts import files_of, loaded, own_surroundings, part, with_files

LOAD = {"scripts": [{"source": "/mine/new.sql"}, {"source": "builtin:select-only"}]}


def trial():
    server = {"bin": "/pg", "version": "18.6", "databases": [{"name": "bench", "init": "/mine/fill.sql"}]}
    return Trial.model_validate(
        {
            "point": {"databases": 2},
            "deployment": {
                "hosts": [
                    {"name": "a", "containers": [{"name": "db1", "servers": [server]}]},
                    {"name": "b", "containers": [{"name": "db2", "servers": [server]}]},
                ],
                "volumes": [{"name": "disk0", "path": "/d"}],
            },
            "phases": [
                {"name": "one", "loads": {"a/db1/pg/bench": LOAD}},
                {
                    "name": "both",
                    "loads": {"a/db1/pg/bench": LOAD, "b/db2/pg/bench": LOAD, "a": {"driver": "fio"}, "disk0": {"driver": "fio"}},
                },
            ],
        }
    )


def test_a_part_has_the_host_s_own_containers_and_loads_and_all_phases():
    own = part(trial(), "b")
    assert [host.name for host in own.deployment.hosts] == ["b"]
    assert [(phase.name, sorted(phase.loads)) for phase in own.phases] == [("one", []), ("both", ["b/db2/pg/bench", "disk0"])]
    assert loaded(own) == [1] and loaded(part(trial(), "a")) == [0, 1]
    assert own.seconds() == trial().seconds()
    assert sorted(part(trial(), "a").phases[1].loads) == ["a", "a/db1/pg/bench", "disk0"]


def test_files_are_named_and_replaced_by_their_copies():
    assert files_of([trial()]) == {"/mine/new.sql", "/mine/fill.sql"}
    own = with_files(part(trial(), "a"), {"/mine/new.sql": "/there/0.sql", "/mine/fill.sql": "/there/1.sql"})
    assert [script.source for script in own.phases[0].loads["a/db1/pg/bench"].scripts] == ["/there/0.sql", "builtin:select-only"]
    assert [database.init for *_, database in own.deployment.databases()] == ["/there/1.sql"]
    assert with_files(own, {}) is own


def test_each_host_reserves_its_own_budget():
    whole = Surroundings(runtime="cgroup", cores=6, memory=600)
    own = own_surroundings(whole, Host(name="a", cores=2, memory=200))
    assert (own.cores, own.memory, own.cluster) == (2, 200, None)
