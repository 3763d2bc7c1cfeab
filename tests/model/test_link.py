import pytest
from pydantic import ValidationError

from pgherd.model.deployment import Deployment, Host
from pgherd.model.link import Link
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial


def test_a_link_is_a_target_of_its_deployment():
    deployment = Deployment(hosts=(Host(),), links=(Link(name="db2", host="db2"),))
    Trial(point={"streams": 1}, deployment=deployment, phases=(Phase(loads={"db2": Load(driver="iperf3")}),))
    with pytest.raises(ValidationError, match="loads db3"):
        Trial(point={"streams": 1}, deployment=deployment, phases=(Phase(loads={"db3": Load(driver="iperf3")}),))


@pytest.mark.parametrize(
    ("words", "message"),
    [({}, "leads to no host"), ({"host": "h", "rate": 1e6}, "does not shape"), ({"host": "h", "port": 0}, "greater than or equal to 1")],
)
def test_a_link_that_makes_no_sense_is_refused(words, message):
    with pytest.raises(ValidationError, match=message):
        Link(name="x", **words)


def test_two_links_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="link names must differ"):
        Deployment(hosts=(Host(),), links=(Link(name="a", host="x"), Link(name="a", host="y")))


def test_a_link_between_hosts_is_named_by_both_ends():
    link = Link(name="b", kind="hosts", near="a", host="10.0.0.2")
    assert link.target == "a/b" and Link(name="b", host="b").target == "b"
    both = (link, Link(name="b", kind="hosts", near="c", host="10.0.0.2"))
    Deployment(hosts=(Host(name="a"), Host(name="b")), links=both)
    with pytest.raises(ValidationError, match="link names must differ, but a/b"):
        Deployment(hosts=(Host(name="a"),), links=(link, link))
    for words in ({"kind": "hosts", "host": "h"}, {"near": "a", "host": "h"}):
        with pytest.raises(ValidationError, match="link x is"):
            Link(name="x", **words)
