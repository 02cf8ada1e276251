"""The engine for many machines, in a schema of PostgreSQL."""

from .engine import PostgresEngine as PostgresEngine
