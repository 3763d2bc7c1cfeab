import pytest

from pgherd.cli import doctor_checks
from pgherd.cli.doctor_checks import compression_ability, network_ability
from pgherd.host import namespaces
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode


@pytest.mark.parametrize(("missing", "able"), [((), "yes"), (("mimesis",), "partly"), (("lz4",), "partly"), (("lz4", "zstandard"), "no")])
def test_missing_libraries_are_named(monkeypatch, missing, able):
    monkeypatch.setattr(doctor_checks, "find_spec", lambda name: None if name in missing else object())
    _, found, _, more = compression_ability()
    assert found == able and all(name in more for name in missing)


def test_without_iperf3_there_is_no_network():
    assert network_ability(LocalNode(), None)[1::2] == ("no", "install the package iperf3")


def test_without_namespaces_there_are_other_hosts(monkeypatch):
    def refuse(node):
        raise CapabilityError("need root")

    monkeypatch.setattr(namespaces, "insist", refuse)
    assert network_ability(LocalNode(), "3.12")[1::2] == ("partly", "need root")
