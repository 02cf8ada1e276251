"""The memory engine: the specification of every other engine."""

from .engine import MemoryEngine as MemoryEngine
