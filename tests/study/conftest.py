"""The simulated host of the density study, for tests of what studies share."""

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("studies_conftest", Path(__file__).parents[1] / "studies/conftest.py")
_SIMULATED = importlib.util.module_from_spec(_SPEC)
sys.modules["studies_conftest"] = _SIMULATED
_SPEC.loader.exec_module(_SIMULATED)
simulate, options = _SIMULATED.simulate, _SIMULATED.options
