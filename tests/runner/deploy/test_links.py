import shutil
from types import SimpleNamespace

import pytest

from pgherd.host import namespaces
from pgherd.host.journal import Journal
from pgherd.model.deployment import Deployment, Host, Link
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.runner.deploy.link_servers import LinkServers
from pgherd.runner.deploy.links import LinkTargets


@pytest.fixture
def session(tmp_path):
    journal = Journal.open(LocalNode(), tmp_path, "test")
    yield SimpleNamespace(node=LocalNode(), journal=journal)
    journal.close()


def trial(*links, loaded=None):
    loads = {name: Load(driver="iperf3") for name in (loaded if loaded is not None else [link.name for link in links])}
    return Trial(point={"streams": 1}, deployment=Deployment(hosts=(Host(),), links=links), phases=(Phase(loads=loads),))


def test_a_remote_link_is_reached_by_its_address(session):
    targets = LinkTargets(session)
    assert targets.apply(trial(Link(name="db2", host="10.0.0.2", port=5300))) is None
    reach = targets.reach("db2")
    assert (reach.host, reach.port, reach.prefix, reach.privileged) == ("10.0.0.2", 5300, (), False)
    assert targets.reach("local") is None and targets.said("local") is None
    assert "10.0.0.2 port 5300" in targets.said("db2")


def test_namespaces_are_kept_while_they_are_wanted(session):
    try:
        namespaces.insist(session.node)
    except CapabilityError as error:
        pytest.skip(str(error))
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    targets, link = LinkTargets(session), Link(name="here", kind="namespaces")
    try:
        assert targets.apply(trial(link)) == "namespaces of here made"
        first = targets.reach("here")
        assert first.privileged and first.host == namespaces.FAR and first.prefix[0] == "nsenter"
        assert targets.apply(trial(link)) is None and targets.reach("here") == first
        targets.check()
        server = targets._made[link][1]
        server.signal(9)
        server.wait(5)
        with pytest.raises(TrialError, match="far end of link here has ended"):
            targets.check()
        assert targets.apply(trial(link)) == "namespaces of here made", "what has ended is made again"
        targets.apply(trial(link, loaded=[]))
        assert session.journal.pending() == []
    finally:
        targets.close()
    assert session.journal.pending() == []


def test_between_hosts_the_far_end_has_a_server_and_the_near_one_a_way(session, monkeypatch):
    started = []
    monkeypatch.setattr(LinkServers, "start", lambda self, links: started.append([link.target for link in links]))
    link = Link(name="b", kind="hosts", near="a", host="10.0.0.2")

    def part(host, loads):
        deployment = Deployment(hosts=(Host(name=host),), links=(link,))
        phase = Phase.model_construct(name="steady", ramp=0, seconds=1, loads=loads)
        return Trial.model_construct(point={}, deployment=deployment, phases=(phase,))

    near, far = LinkTargets(session), LinkTargets(session)
    assert near.apply(part("a", {"a/b": Load(driver="iperf3")})) is None and far.apply(part("b", {})) == "serving a/b"
    assert started == [[], ["a/b"]]
    assert (near.reach("a/b").host, near.reach("a/b").port) == ("10.0.0.2", 5201) and far.reach("a/b") is None
    assert "server on host b listened at 10.0.0.2 port 5201" in near.said("a/b")
