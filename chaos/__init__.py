"""Chaos tests: `make chaos` kills processes and breaks disks and servers under load, then checks the records."""
