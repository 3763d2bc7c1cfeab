"""Huge pages (E9): a comparison of one server with several page sizes of shared memory."""
