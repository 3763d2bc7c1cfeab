"""What a run tells while it is executed: its metrics, for Prometheus to scrape."""
