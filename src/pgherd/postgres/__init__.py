"""PostgreSQL servers: installations, data directory templates, settings, start and stop."""
