"""Nodes on many hosts, over Dask distributed: the engine that starts, reaches and watches an agent on each."""
