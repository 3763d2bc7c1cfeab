"""Metrics of runs in OpenMetrics: served while a run executes, or written to a file afterwards."""
