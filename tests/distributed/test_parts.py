from pgherd.distributed.parts import files_of, loaded, own_surroundings, part, served, with_addresses, with_files
from pgherd.model.deployment import Host
from pgherd.model.run import Surroundings
from pgherd.model.trial import Trial

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


def test_what_is_driven_from_another_host_is_part_of_that_one_but_served_at_home():
    whole = trial()
    loads = {target: load.model_copy(update={"host": "b"}) if "/" in target else load for target, load in whole.phases[1].loads.items()}
    whole = whole.model_copy(update={"phases": (whole.phases[0], whole.phases[1].model_copy(update={"loads": loads}))})
    assert sorted(part(whole, "b").phases[1].loads) == ["a/db1/pg/bench", "b/db2/pg/bench", "disk0"]
    assert sorted(part(whole, "a").phases[1].loads) == ["a", "disk0"]
    own = served(whole, "a").phases[1].loads
    assert sorted(own) == ["a", "a/db1/pg/bench", "disk0"] and own["a/db1/pg/bench"].host is None
    assert sorted(served(whole, "b").phases[1].loads) == ["b/db2/pg/bench", "disk0"]


def test_links_lead_to_where_the_hosts_are_now():
    links = [{"name": far, "kind": "hosts", "near": "a", "host": f"10.0.0.{far}"} for far in ("b", "c")] + [{"name": "d", "host": "d"}]
    whole = Trial.model_validate({"point": {}, "deployment": {"hosts": [{"name": "a"}], "links": links}, "phases": [{"loads": {}}]})
    moved = with_addresses(whole, {"a": "10.9.0.1", "b": "10.9.0.2", "d": "10.9.0.4"})
    assert [link.host for link in moved.deployment.links] == ["10.9.0.2", "10.0.0.c", "d"]
    assert with_addresses(trial(), {"a": "10.9.0.1"}) == trial()


def test_each_host_has_its_own_volumes_and_every_link():
    link = {"name": "b", "kind": "hosts", "near": "a", "host": "10.0.0.2"}
    whole = Trial.model_validate(
        {
            "point": {},
            "deployment": {
                "hosts": [{"name": "a"}, {"name": "b"}],
                "volumes": [{"name": "disk0", "path": "/d", "host": host} for host in ("a", "b")],
                "links": [link],
            },
            "phases": [{"loads": {"a/disk0": {"driver": "fio"}, "b/disk0": {"driver": "fio"}, "a/b": {"driver": "iperf3"}}}],
        }
    )
    near, far = part(whole, "a"), part(whole, "b")
    assert sorted(near.phases[0].loads) == ["a/b", "a/disk0"] and sorted(far.phases[0].loads) == ["b/disk0"]
    assert [volume.host for volume in far.deployment.volumes] == ["b"]
    assert [one.target for one in far.deployment.links] == ["a/b"], "its far end is here"
