"""The engine on a Redis or Valkey server."""

from .engine import RedisEngine as RedisEngine
