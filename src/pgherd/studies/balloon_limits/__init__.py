"""Memory limit that changes under load: native pools of several sizes, and pg_balloon."""
