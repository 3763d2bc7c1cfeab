"""This machine: facts, control groups, the undo journal. The only place that changes host state."""
