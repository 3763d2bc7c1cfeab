"""Local web page for run directories."""
