"""Completes a request for this host: databases, load, limits, volumes, variants, hosts. No study is named here."""
