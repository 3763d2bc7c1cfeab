"""The run directory: write safely, read lazily."""
