"""The SQLite engine: a queue in one file."""

from .engine import SqliteEngine as SqliteEngine
