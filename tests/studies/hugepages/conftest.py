"""Several page sizes on a simulated host of known truth. The comparison itself is tested in tests/study/comparison."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from pgherd.studies.hugepages.options import HugepagesOptions
from pgherd.studies.hugepages.study import STUDY

MB = 2**20


@pytest.fixture(scope="module")
def compared():
    """Simulator of comparisons."""
    spec = importlib.util.spec_from_file_location("compare_conftest", Path(__file__).parents[2] / "study/comparison/conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare_conftest"] = module
    spec.loader.exec_module(module)
    return module


KINDS = {
    "none": {"settings": {"huge_pages": "off"}, "transparent_huge_pages": False},
    "2MB": {"settings": {"huge_pages": "on", "huge_page_size": "2048kB"}, "huge_page_bytes": 2 * MB * 829},
    "1GB": {"settings": {"huge_pages": "on", "huge_page_size": "1048576kB"}, "huge_page_bytes": 1024 * MB * 2},
    "thp": {"settings": {"huge_pages": "off"}, "transparent_huge_pages": True},
}


@pytest.fixture
def build(compared):
    def options(*kinds, counters_unavailable="", **extra):
        names = kinds or tuple(KINDS)
        variants = [{"name": name, "study": "density", "options": compared.server_options(**KINDS[name])} for name in names]
        sizes = {"2MB": 2 * MB, "1GB": 1024 * MB}
        return HugepagesOptions(
            variants=variants,
            baseline=names[0],
            max_blocks=14,
            time_budget=4000,
            counters_unavailable=counters_unavailable,
            page_sizes={name: size for name, size in sizes.items() if name in names},
            **extra,
        )

    return options


@pytest.fixture
def run(compared):
    """Run the study to its end on a host of known truth."""

    def through(options, **extra):
        simulator = compared.Simulator(options, **extra)
        results = []
        while (proposal := STUDY.propose(options, results)).stop is None:
            results += simulator.all(proposal.trials)
        return results

    return through
