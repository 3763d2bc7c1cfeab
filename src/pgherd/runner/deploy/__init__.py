"""Deployment of a trial: servers, guests, huge pages, volumes and targets."""
