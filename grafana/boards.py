"""All dashboards, in the order in which they are made."""

from __future__ import annotations

from consolidation_board import CONSOLIDATION
from density_board import DENSITY
from node_board import NODE
from panels import Dashboard
from storage_board import STORAGE

ALL: tuple[Dashboard, ...] = (DENSITY, CONSOLIDATION, STORAGE, NODE)
