"""Labels of hosts."""

from __future__ import annotations

import pytest

from pgherd.cluster import labels
from pgherd.model.errors import UsageError
from pgherd.study.shared_options import PIN


def test_hosts_are_given_labels():
    text = ["a:disk=nvme", "fe80::1:rack=r1/2:b", "a:zone=eu-1", "a:disk=nvme"]
    assert labels.given(text, ["a", "b", "fe80::1"]) == {"a": {"disk": "nvme", "zone": "eu-1"}, "fe80::1": {"rack": "r1/2:b"}}
    assert labels.given([], ["a"]) == {} and labels.EVERYWHERE == PIN


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("disk=nvme", "write HOST:KEY=VALUE"),
        ("a:disk", "write HOST:KEY=VALUE"),
        ("a:disk=", "write HOST:KEY=VALUE"),
        ("a:disk=x,y", "write HOST:KEY=VALUE"),
        ("a:di sk=x", "write HOST:KEY=VALUE"),
        ("a:rack=/1", "VALUE of these, '/' and ':', and both begin with a letter, a digit or '_'"),
        ("a:.disk=x", "KEY is of ASCII letters"),
        ("a:host=b", "the label host is reserved for the host's name; choose another key"),
        ("c:disk=x", "c is not one of a, b"),
        ("a:disk=hdd", "a has disk=ssd; a label has one value"),
    ],
)
def test_what_is_no_label_is_refused(word, reason):
    with pytest.raises(UsageError, match=reason):
        labels.given(["a:disk=ssd", word], ["a", "b"])


def test_an_agent_knows_its_environment_s_and_what_it_was_told(monkeypatch):
    monkeypatch.setenv(labels.VARIABLE, "disk=ssd, rack=2,nonsense")
    labels.set_local_labels({"disk": "nvme", "zone": "eu"})
    assert labels.local_labels() == {"disk": "nvme", "rack": "2", "zone": "eu"}
    monkeypatch.delenv(labels.VARIABLE)
    assert labels.local_labels() == {}
