"""Runtimes: containers for servers, and the balloons of guests."""
