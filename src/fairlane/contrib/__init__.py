"""Adapters for the queues that people already have: their tasks are checked when they are published."""
