from types import SimpleNamespace

import pytest

from pgherd.model.errors import TrialError
from pgherd.runner import probes
from pgherd.study.study import Study


def test_the_probe_of_the_study_of_its_name_measures(monkeypatch):
    monkeypatch.setattr(Study, "hook", lambda self, module, name: lambda session, *_: {f"{self.name}_{session}": 1.0})
    assert probes.measure("s", {}, SimpleNamespace(probe="compression"), None) == {"compression_s": 1.0}


@pytest.mark.parametrize("probe", ["smell", "density"])
def test_a_study_without_a_probe_is_refused(probe):
    with pytest.raises(TrialError, match=f"no probe '{probe}'"):
        probes.measure(None, {}, SimpleNamespace(probe=probe), None)
