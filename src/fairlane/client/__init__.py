"""The client of a Fairlane server: `Client`, and `AsyncClient` with the same verbs awaited."""

from .async_client import AsyncClient, AsyncEvents
from .client import Client
from .events import Events
from .models import Batch, BatchReceipt, KeyInfo, Me, NewKey, NewUploadToken, UploadTokenInfo

__all__ = [
    "AsyncClient",
    "AsyncEvents",
    "Batch",
    "BatchReceipt",
    "Client",
    "Events",
    "KeyInfo",
    "Me",
    "NewKey",
    "NewUploadToken",
    "UploadTokenInfo",
]
