"""Completing a verification for this host."""

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import Size
from pgherd.node.local import LocalNode
from pgherd.prepare import servers
from pgherd.studies.place_verify.options import PlaceVerifyRequest
from pgherd.studies.place_verify.prepare import plan_lines, prepare
from pgherd.studies.place_verify.propose import propose

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
    assert found.options.scripts[0].source.endswith("planned_load.sql")
    assert any("Each planned core is 0.05 cores here" in text for text in found.defaults_chosen)
    lines = plan_lines(found.options, propose(found.options, []).trials)
    assert lines[1] == "  h-1: 2 databases, 8 cores planned, 0.4 here."


def test_what_does_not_fit_is_refused(prepared):
    with pytest.raises(UsageError, match="there is no plan to verify; make one with 'pgherd place"):
        prepared()
    with pytest.raises(UsageError, match="needs at least .*; verify fewer hosts"):
        prepared(host(), host(cores=0.01) | {"name": "h-2"})
    with pytest.raises(UsageError, match="servers of 50 databases need .* verify fewer hosts"):
        prepared(host(databases=50))
