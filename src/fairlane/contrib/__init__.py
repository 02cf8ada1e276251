"""Adapters for what people already have: queues, whose tasks are checked when they are published, and clusters."""
