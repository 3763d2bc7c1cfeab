"""Empty package. Preparation of a run is in ``pgherd.prepare``."""
