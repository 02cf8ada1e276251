"""Engines: the stores that hold a queue. `open_engine` opens the one that a URL names."""

from __future__ import annotations

from .protocol import Engine as Engine
from .url import copy_queue_file as copy_queue_file
from .url import engine_opener as engine_opener
from .url import fence_queue_file as fence_queue_file
from .url import join_transaction as join_transaction
from .url import open_engine as open_engine
from .url import set_memory_clock as set_memory_clock
from .url import vacuum_queue_file as vacuum_queue_file
