"""Masking: URLs for messages, without the passwords in them.

Laws:
- When in doubt too much is masked: a URL that ends up in a message is often one that could not be parsed.
"""

from __future__ import annotations

import re

MASK = "***"
WITHOUT_USER = ("sqlite:", "memory:")  # their paths may hold a colon and an @
# A setting whose name speaks of a secret, and its value up to the next setting: password=, sslpassword=, passfile=, …
_SECRET_SETTING = re.compile(r"(?is)((?:^|[?&;\s])[\w%.-]*(?:pas|pwd|secret|token)[\w%.-]*\s*=\s*).*?(?=[&;\s][\w%.-]+\s*=|$)")


def mask_url(url: str) -> str:
    """Return a URL without its passwords, whatever its scheme, also if it is none."""
    if url.lower().startswith(WITHOUT_USER):
        return url
    url = _SECRET_SETTING.sub(rf"\g<1>{MASK}", url)
    # Up to the last @, because a password that was not percent-encoded may hold others, and slashes too.
    before_host, at, host = url.rpartition("@")
    start = before_host.find("://") + 3 if "://" in before_host else 0
    user, colon, _ = before_host[start:].partition(":")
    return f"{before_host[:start]}{user}:{MASK}{at}{host}" if colon else url
