"""The reference engine, in memory."""

from .engine import MemoryEngine as MemoryEngine
