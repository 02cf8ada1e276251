"""Shares: who holds what of the service at once, so that one customer cannot take all of it."""

from __future__ import annotations

from .auth import Caller


def holder_of(caller: Caller) -> str:
    """Return whose share a caller uses: a customer has one share for all its keys, anybody else one of its own."""
    return f"caller {caller.id}" if caller.customer is None else f"customer {caller.customer}"
