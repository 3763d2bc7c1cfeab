"""Simulator of comparisons, for the study's figures and preparation."""

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("compare_conftest", Path(__file__).parents[2] / "study/comparison/conftest.py")
_COMPARISON = importlib.util.module_from_spec(_SPEC)
sys.modules["compare_conftest"] = _COMPARISON
_SPEC.loader.exec_module(_COMPARISON)
simulate, server, options = _COMPARISON.simulate, _COMPARISON.server, _COMPARISON.options
