"""Run directories: records, trials, live state and samples of a run on disk."""
