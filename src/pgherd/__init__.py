"""pgherd measures how PostgreSQL scales and how densely it can be consolidated."""

__version__ = "0.1.0"
