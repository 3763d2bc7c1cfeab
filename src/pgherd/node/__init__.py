"""Access to one machine: files, processes, SQL and sampling, on this host or in a virtual machine."""
