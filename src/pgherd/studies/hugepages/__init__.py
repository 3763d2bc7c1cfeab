"""Huge pages (E9): a comparison of one server on several kinds of pages of shared memory."""
