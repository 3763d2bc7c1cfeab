"""The studies by name. A study's modules are imported only when it is asked for: most calls need one of them."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

from pgherd.model.errors import UsageError
from pgherd.model.study import Study

STUDIES: Mapping[str, str] = {
    "compare": "pgherd.studies.compare:STUDY",
    "consolidation": "pgherd.studies.consolidation:STUDY",
    "compression": "pgherd.studies.compression:STUDY",
    "density": "pgherd.studies.density:STUDY",
    "disk": "pgherd.studies.disk:STUDY",
    "exec": "pgherd.studies.execution:STUDY",
    "hugepages": "pgherd.studies.hugepages:STUDY",
    "network": "pgherd.studies.network:STUDY",
    "scaling": "pgherd.studies.scaling:STUDY",
    "sizes": "pgherd.studies.sizes:STUDY",
    "storage": "pgherd.studies.storage:STUDY",
    "working-set": "pgherd.studies.working_set:STUDY",
}
"""Verb → ``module:name`` of the study."""


def study_of(name: str) -> Study[Any]:
    """The study by its name; raises UsageError when there is none."""
    if name not in STUDIES:
        raise UsageError(f"there is no study '{name}'; there are {', '.join(sorted(STUDIES))}")
    found: Study[Any] = pkgutil.resolve_name(STUDIES[name])
    return found
