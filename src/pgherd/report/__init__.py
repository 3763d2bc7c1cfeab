"""Findings and samples to terminal, HTML, SVG/PNG, JSON, CSV."""
