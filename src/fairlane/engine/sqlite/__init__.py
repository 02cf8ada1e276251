"""The embedded engine, in a file of SQLite."""

from .engine import SqliteEngine as SqliteEngine
