"""Compare: which variant is better, by how much, and how certain that is. Trials in randomized blocks, with an A/A pair."""
