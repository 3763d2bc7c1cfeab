"""What a database holds and which transactions run on it: schema, loader, scripts."""
