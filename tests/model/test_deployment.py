import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import ValidationError

from pgherd.model.deployment import Container, Database, Deployment, Host, Link, Server, VmOptions, Volume
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial


def test_a_link_is_a_target_of_its_deployment():
    deployment = Deployment(hosts=(Host(),), links=(Link(name="db2", host="db2"),))
    Trial(point={"streams": 1}, deployment=deployment, phases=(Phase(loads={"db2": Load(driver="iperf3")}),))
    with pytest.raises(ValidationError, match="loads unknown targets: db3"):
        Trial(point={"streams": 1}, deployment=deployment, phases=(Phase(loads={"db3": Load(driver="iperf3")}),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({}, "has no host"),
        ({"host": "h", "rate": 1e6}, "apply to namespaces only"),
        ({"host": "h", "port": 0}, "greater than or equal to 1"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(ValidationError, match=message):
        Link(name="x", **text)


def test_two_links_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="repeated link names"):
        Deployment(hosts=(Host(),), links=(Link(name="a", host="x"), Link(name="a", host="y")))


def test_a_link_between_hosts_is_named_by_both_ends():
    link = Link(name="b", kind="hosts", near="a", host="10.0.0.2")
    assert link.target == "a/b" and Link(name="b", host="b").target == "b"
    both = (link, Link(name="b", kind="hosts", near="c", host="10.0.0.2"))
    Deployment(hosts=(Host(name="a"), Host(name="b")), links=both)
    with pytest.raises(ValidationError, match="repeated link names: a/b"):
        Deployment(hosts=(Host(name="a"),), links=(link, link))
    for text in ({"kind": "hosts", "host": "h"}, {"near": "a", "host": "h"}):
        with pytest.raises(ValidationError, match="link x: .near. is required"):
            Link(name="x", **text)


def test_what_is_not_asked_for_is_not_written_and_comes_back():
    for item, written in ((VmOptions(), {}), (VmOptions(merge=True, huge_page=2**21), {"huge_page": 2**21, "merge": True})):
        container = Container(name="a", runtime="vm", vm=item)
        assert container.model_dump(mode="json")["vm"] == written
        assert Container.model_validate_json(container.model_dump_json()) == container


def test_clients_of_a_schema_connect_to_its_database_with_its_search_path():
    schema = Database(name="db-1", schema_of="bench")
    assert schema.dbname == "bench"
    assert conninfo_to_dict(schema.connection) == {"dbname": "bench", "options": '-csearch_path="db-1"'}
    plain = Database(name="db-1")
    assert plain.dbname == plain.connection == "db-1"
    with pytest.raises(ValidationError, match="schema_of"):
        Database(name="db1", schema_of="bench' host='elsewhere")


def server(name="pg", databases=("bench",)):
    return Server(name=name, bin="/opt/pg/bin", version="18.6", databases=tuple(Database(name=n) for n in databases))


def deployment(*containers):
    return Deployment(hosts=(Host(containers=containers),))


def test_every_scheme_is_one_nested_structure():
    one_one_many = deployment(Container(name="c1", servers=(server(databases=("a", "b")),)))
    one_many_many = deployment(Container(name="c1", servers=(server("s1"), server("s2"))))
    many = deployment(Container(name="c1", servers=(server(),)), Container(name="c2", servers=(server(),)))
    assert [str(location) for location, *_ in one_one_many.databases()] == ["local/c1/pg/a", "local/c1/pg/b"]
    assert [str(path) for path, *_ in one_many_many.databases()] == ["local/c1/s1/bench", "local/c1/s2/bench"]
    assert [str(location) for location, *_ in many.databases()] == ["local/c1/pg/bench", "local/c2/pg/bench"]


def test_two_databases_with_one_address_are_refused():
    with pytest.raises(ValidationError, match="repeated database addresses: local/c1/pg/bench"):
        deployment(Container(name="c1", servers=(server(), server())))


def test_a_server_lies_on_volumes_of_the_deployment():
    apart = server().model_copy(update={"volumes": {"wal": "fast"}})
    with pytest.raises(ValidationError, match="server c1/pg uses unknown volumes: fast"):
        deployment(Container(name="c1", servers=(apart,)))


@pytest.mark.parametrize("name", ["", "a/b", "../x", "A", "x" * 41])
def test_names_are_plain_since_they_become_paths(name):
    with pytest.raises(ValidationError):
        Container(name=name)


def test_an_unknown_field_is_an_error():
    with pytest.raises(ValidationError, match="vcpu"):
        Container.model_validate({"name": "c1", "vcpu": 4})


def test_each_of_several_hosts_may_have_a_volume_of_one_name():
    own = [Volume(name="disk0", path="/d", host=host) for host in ("a", "b")]
    assert [volume.target for volume in own] == ["a/disk0", "b/disk0"] and Volume(name="disk0").target == "disk0"
    Deployment(hosts=(Host(name="a"), Host(name="b")), volumes=tuple(own))
    with pytest.raises(ValidationError, match="repeated volume names: a/disk0"):
        Deployment(hosts=(Host(name="a"),), volumes=(own[0], own[0]))
