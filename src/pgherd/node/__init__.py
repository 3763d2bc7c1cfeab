"""A node reads files, spawns processes, runs SQL and tells the time: this host, later a guest or a cluster's agent."""
