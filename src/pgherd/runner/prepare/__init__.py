"""Completing what a request says, for this host or the hosts of a cluster, before anything is begun."""
