"""What isolates servers: process, cgroup; one module each behind one Protocol."""
