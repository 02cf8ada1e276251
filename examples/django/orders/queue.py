"""The queue of this project, opened once in each process."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from fairlane import Queue


@cache
def queue() -> Queue:
    return Queue(settings.FAIRLANE_URL)
