"""Scaling (E3): how one server's throughput grows with its clients, where it peaks, and which variant scales better."""
