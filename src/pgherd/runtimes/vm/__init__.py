"""Containers that are virtual machines: the guest, the hypervisor that runs it, and the guest as a node."""
