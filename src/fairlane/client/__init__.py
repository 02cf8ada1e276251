"""The client of a Fairlane server: `Client`, and `AsyncClient` with the same verbs awaited."""

from .async_client import AsyncClient, AsyncEvents
from .client import Client
from .events import Events
from .models import Batch, BatchReceipt, Check, Document, Event, Me, Receipt

__all__ = [
    "AsyncClient",
    "AsyncEvents",
    "Batch",
    "BatchReceipt",
    "Check",
    "Client",
    "Document",
    "Event",
    "Events",
    "Me",
    "Receipt",
]
