"""Access to this host or a virtual machine: files, processes, SQL, sampling."""
