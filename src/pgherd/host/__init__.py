"""This machine: facts, cgroups, swap, huge pages and the undo journal.

No other package changes host state.
"""
