import os
import shutil
import socket

import pytest

from pgherd.host import netns
from pgherd.model.deployment import Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.studies.network import prepare as module
from pgherd.studies.network.options import NetworkRequest
from pgherd.studies.network.prepare import parse_bits, prepare

pytestmark = pytest.mark.usefixtures("own_directories")


@pytest.fixture(autouse=True)
def _iperf3():
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")


def prepared(dry=True, **requested):
    return prepare(LocalNode(), NetworkRequest(**requested), dry)


@pytest.mark.parametrize(
    ("word", "name", "host", "port"),
    [
        ("db2", "db2", "db2", 5201),
        ("db2:5300", "db2:5300", "db2", 5300),
        ("10.0.0.7", "10.0.0.7", "10.0.0.7", 5201),
        ("[fd00::2]:5300", "fd00::2:5300", "fd00::2", 5300),
        ("[fd00::2]", "fd00::2", "fd00::2", 5201),
        ("[fe80::1%enp3s0]:5300", "fe80::1_enp3s0:5300", "fe80::1%enp3s0", 5300),
    ],
)
def test_where_to_is_read(word, name, host, port):
    [link] = prepared(to=(word,)).options.links
    assert (link.name, link.host, link.port, link.kind) == (name, host, port, "remote")


def test_a_plain_request_is_completed():
    prepared_study = prepared(to=("db2",))
    assert prepared_study.options.streams == (1, 2, 4, 8, 16) and prepared_study.installation is None and "iperf3" in prepared_study.tools
    assert prepared_study.host_changes == () and prepared_study.disk == 0


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({}, "no link to measure; give --to HOST"),
        ({"to": ("db2", "db2")}, "db2 more than once"),
        ({"to": ("a b",)}, "write HOST or HOST:PORT"),
        ({"to": ("-R",)}, "write HOST or HOST:PORT"),
        ({"to": ("db2:70000",)}, "write HOST or HOST:PORT"),
        ({"to": ("db2",), "netns_rate": "1M"}, "add --netns"),
        ({"to": ("db2",), "duration": "1s"}, "give 2 s or more"),
        ({"to": ("db2",), "congestion": "magic"}, "the kernel does not have"),
        ({"to": ("db2",), "host_cores": 10000}, "more than this host has"),
        ({"to": ("db2",), "threshold": ("x=1",)}, "no threshold 'x'"),
    ],
)
def test_what_cannot_be_done_is_said(requested, message):
    with pytest.raises(UsageError, match=message):
        prepared(**requested)


def test_nobody_there_is_said_with_what_to_start():
    with pytest.raises(UsageError, match=r"no iperf3 server answers at port 9 .*iperf3 --server --port 9"):
        prepared(dry=False, to=("127.0.0.1:9",))


def test_a_missing_iperf3_names_the_package(monkeypatch):
    class Without(LocalNode):
        def run(self, command, timeout=60.0):
            if command.argv[0] == "iperf3":
                raise FileNotFoundError("iperf3")
            return super().run(command, timeout)

    with pytest.raises(CapabilityError, match="install the package iperf3"):
        prepare(Without(), NetworkRequest(to=("db2",)), True)


@pytest.mark.parametrize(("text", "bits"), [("200M", 2e8), ("1.5 Gbit/s", 1.5e9), ("64k", 64e3), ("1000", 1000.0), ("10gbps", 1e10)])
def test_rates_have_decimal_prefixes(text, bits):
    assert parse_bits(text) == bits


@pytest.mark.parametrize("text", ["", "fast", "-1M", "0", "1 MB"])
def test_what_is_no_rate_is_said(text):
    with pytest.raises(UsageError, match="not a rate"):
        parse_bits(text)


def test_namespaces_say_what_they_change(monkeypatch):
    monkeypatch.setattr(module.netns, "require_root", lambda node: None)
    prepared_study = prepared(netns=True, netns_rate="200M")
    assert "two network namespaces" in prepared_study.host_changes[0] and any(
        "limited to 200 Mbit/s" in text for text in prepared_study.defaults_chosen
    )
    with pytest.raises(UsageError, match="between 0.01ms and 10s"):
        prepared(netns=True, netns_delay="1h")


def test_namespaces_need_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CapabilityError, match="need root|install"):
        netns.require_root(LocalNode())


def host(name, address="127.0.0.1"):
    return Host(name=name, address=address)


def test_a_cluster_s_hosts_are_linked_each_to_every_other():
    result = prepared(over=(host("a"), host("b"), host("c", "192.0.2.1")), port=free_port(), cluster="mine").options
    assert [link.target for link in result.links] == ["a/b", "a/c", "b/a", "b/c", "c/a", "c/b"] and result.hosts == ("a", "b", "c")
    assert {link.target: link.host for link in result.links}["a/c"] == "192.0.2.1"
    assert "in trials that send to this host" in prepared(over=(host("a"), host("b")), port=free_port()).host_changes[0]
    joined = module.over_hosts({"a": result, "b": result.model_copy(update={"iperf3_version": "3.1", "host_cores": 1})})
    assert joined.host_cores == 1 and joined.iperf3_version.endswith("3.1 on b") and joined.links == result.links


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"over": (host("a"),)}, "the cluster has only one host, a"),
        ({"over": (host("a"),), "hosts": ("a",)}, "--hosts names only one host, a"),
        ({"to": ("db2",), "hosts": ("a", "b")}, "--cluster is not given"),
        ({"over": (host("a"), host("b")), "to": ("c",)}, "--to does not apply with --cluster"),
        ({"over": (host("a"), host("b")), "reverse": True}, "--reverse does not apply with --cluster"),
        ({"over": (host("a"), host("b")), "netns_rate": "1M"}, "add --netns"),
        ({"to": ("db2",), "port": 5300}, "give --to HOST:PORT"),
    ],
)
def test_what_does_not_go_with_a_cluster_is_said(requested, message):
    with pytest.raises(UsageError, match=message):
        prepared(**requested)


def test_a_port_that_is_taken_and_addresses_of_others_are_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1 is in use.*choose another port with --port"):
            prepared(over=(host("a", "192.0.2.1"), host("b")), port=port)
    with pytest.raises(CapabilityError, match="cannot listen at any address"):
        prepared(over=(host("a", "192.0.2.1"), host("b", "198.51.100.2")))


def test_a_shell_that_finds_no_iperf3_says_the_same():
    class Without(LocalNode):
        def run(self, command, timeout=60.0):
            if command.argv[0] == "iperf3":
                return Completed(127, "", "sh: 1: exec: iperf3: not found")
            return super().run(command, timeout)

    with pytest.raises(CapabilityError, match="iperf3 is not installed.*install the package iperf3"):
        prepare(Without(), NetworkRequest(to=("db2",)), True)
