"""An attempt to sign in: what the browser keeps while it is at the provider, and why an attempt failed."""

from __future__ import annotations

from typing import Literal, NamedTuple

FailureCode = Literal["denied", "stale", "away", "invalid", "no_role", "busy"]  # the page has words for each
FLOW_SECONDS = 600  # that somebody may take to sign in
SKEW_SECONDS = 60  # by which clocks may differ


class SignInFailed(Exception):
    """Somebody could not sign in: the code is for the page, the message for the log."""

    def __init__(self, code: FailureCode, reason: str) -> None:
        super().__init__(reason)
        self.code: FailureCode = code


class SignInAttempt(NamedTuple):
    """What the browser that began a sign-in keeps until it is back."""

    state: str
    nonce: str
    code_verifier: str
    began: int  # seconds

    def to_cookie(self) -> str:
        return ".".join(str(part) for part in self)


def parse_attempt(cookie: str) -> SignInAttempt | None:
    """Parse the cookie of a sign-in; None: it is none."""
    parts = cookie.split(".")
    is_attempt = len(parts) == 4 and all(part.isascii() and part.isalnum() for part in parts) and parts[3].isdigit()
    return SignInAttempt(parts[0], parts[1], parts[2], int(parts[3][:12])) if is_attempt else None
