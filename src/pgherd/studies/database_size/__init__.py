"""Database size (E10): how large a database of a given scale is on this PostgreSQL, and how large others would be."""
