"""The demo: sample documents, and a service with sample customers."""
