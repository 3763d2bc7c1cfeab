"""Completing a verification for this host."""

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import Size
from pgherd.node.local import LocalNode
from pgherd.prepare import servers
from pgherd.studies.place_verify.options import PlaceVerifyRequest
from pgherd.studies.place_verify.prepare import MEMORY_OF_DATABASE, plan_lines, prepare
from pgherd.studies.place_verify.propose import deploy, propose

pytestmark = pytest.mark.usefixtures("own_directories")


def host(cores=8.0, databases=2):
    return {"name": "h-1", "cores": cores, "databases": [f"d{n}" for n in range(databases)], "cpu": [[1.0, 2.0]] * databases}


@pytest.fixture
def prepared(monkeypatch):
    monkeypatch.setattr(servers.settings_validation, "validate", lambda *_: None)  # tested elsewhere, and slow

    def run(*planned, **requested):
        defaults = {"host_cores": 1.0, "host_memory": Size("2GB"), "planned": planned, "slots": ("a", "b") if planned else ()}
        try:
            return prepare(LocalNode(), PlaceVerifyRequest.model_validate({**defaults, **requested}), dry=True)
        except CapabilityError as error:
            pytest.skip(str(error))

    return run


def test_hosts_are_scaled_to_a_part_of_the_cores(prepared):
    found = prepared(host(), host(cores=2.0) | {"name": "h-2"})
    assert found.options.factor == pytest.approx(0.05)
    assert [found.options.quota(one) for one in found.options.planned] == pytest.approx([0.4, 0.1])
    assert found.options.scale == 1 and found.options.client_placement == "outside"
    assert found.options.memory_factor is None and found.options.scales == () and found.options.scale_of(0, 1) == 1
    assert found.options.scripts[0].source.endswith("planned_load.sql")
    assert found.options.settings["autovacuum"] == "off" and [row.value for row in found.settings if row.name == "autovacuum"] == ["off"]
    assert any("Each planned core is 0.05 cores here" in text for text in found.defaults_chosen)
    lines = plan_lines(found.options, propose(found.options, []).trials)
    assert lines[1] == "  h-1: 2 databases, 8 cores planned, 0.4 here."


def test_memory_is_scaled_down_to_whole_scales(prepared):
    """Half of 2 GB, for 10 GB that are planned."""
    found = prepared(host() | {"memory": [3 * 1024, 6 * 1024]}, host(databases=1) | {"name": "h-2", "memory": [1024]})
    assert found.options.memory_factor == pytest.approx(0.0375) == 3 * MEMORY_OF_DATABASE / (10 * 2**30), "128 MB for each are less"
    assert found.options.scales == ((6, 13), (1,)), "115, 230 and 38 MB, less 32 MB of each server"
    names = [database.scale for server in deploy(found.options).hosts[0].containers[0].servers for database in server.databases]
    assert names == [6, 13] and [deploy(found.options).hosts[0].containers[-1].servers[0].databases[0].scale] == [1]
    assert any("Each planned MB of memory is 0.0375 MB here, in databases of whole scales." in text for text in found.defaults_chosen)
    assert prepared(host() | {"memory": [40, 40]}).options.memory_factor == 1
    assert prepared(host() | {"memory": [40, 40]}, host() | {"name": "h-2"}).options.scales == (), "only one host has memory"


def test_what_does_not_fit_is_refused(prepared):
    with pytest.raises(UsageError, match="there is no plan to verify; make one with 'pgherd place"):
        prepared()
    with pytest.raises(UsageError, match="needs at least .*; verify fewer hosts"):
        prepared(host(), host(cores=0.01) | {"name": "h-2"})
    with pytest.raises(UsageError, match="servers of 50 databases need .* verify fewer hosts"):
        prepared(host(databases=50))
