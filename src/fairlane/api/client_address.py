"""The client of a request: its address and scheme, also behind proxies.

Laws:
- What a proxy says of its client's address is believed only of proxies that are named, and read from the right: each proxy adds
  the address that it has seen itself, and what stands further left may be forged.
- `X-Forwarded-For` comes before `Forwarded`; a proxy that sets only the second must remove the first.
- Headers in which a proxy says who its user is are taken out of every request that no trusted proxy sent.
- The scheme is the one furthest left, which is the browser's. It is also believed of a proxy on this machine, and of all with
  `--behind-proxy`: a client that lies about it harms only itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, MutableMapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple

from fairlane.core.errors import BadValue

IPV6_PREFIX = 64  # bits: one customer of a network provider has at least so many addresses
HOPS_MAX = 20  # proxies in a row; of a longer list the middle is not read
_FORWARDED_PAIR = re.compile(r'\s*(\w+)\s*=\s*("[^"]*"|[^\s;,"]*)\s*', re.ASCII)


class RequestSource(NamedTuple):
    """Where a request comes from: the client's address, whether the client speaks TLS, whether a trusted proxy sent it."""

    address: str
    is_https: bool
    is_from_proxy: bool = False


class TrustedProxies:
    """The proxies whose word about their clients is believed."""

    def __init__(self, networks: Iterable[str] = (), *, is_behind_proxy: bool = False) -> None:
        self.networks = [_parse_network(network) for network in networks]
        self._is_behind_proxy = is_behind_proxy
        self.is_trusted = lru_cache(4096)(self._is_trusted)

    def __bool__(self) -> bool:
        return bool(self.networks)

    def _is_trusted(self, address: str) -> bool:
        """Whether this is the address of a proxy that was named."""
        parsed = parse_address(address)
        return parsed is not None and any(parsed in network for network in self.networks)

    def is_counted(self, address: str) -> bool:
        """Whether limits by address hold for this peer: not if it is a proxy, or may be one that nobody has named."""
        if self.networks:
            return not self.is_trusted(address)
        return not (self._is_behind_proxy or is_loopback(address))

    def source(self, scope: MutableMapping[str, Any]) -> RequestSource:
        """Find out who sent a request, and whether with TLS."""
        peer = plain_address((scope.get("client") or ("",))[0])
        is_https, is_trusted = scope.get("scheme") == "https", bool(self.networks) and self.is_trusted(peer)
        if not (is_trusted or self._is_behind_proxy or is_loopback(peer)):
            return RequestSource(peer, is_https)
        headers = scope["headers"]
        forwarded = [_parse_forwarded(element) for element in _listed(headers, b"forwarded")]
        if not is_https:
            schemes = _listed(headers, b"x-forwarded-proto") or [pairs.get("proto", "") for pairs in forwarded]
            is_https = schemes[:1] == ["https"]
        if not is_trusted:
            return RequestSource(peer, is_https)
        hops = _listed(headers, b"x-forwarded-for") or [pairs.get("for", "") for pairs in forwarded]
        return RequestSource(self._walk(peer, hops), is_https, is_from_proxy=True)

    def _walk(self, address: str, hops: list[str]) -> str:
        """Go from proxy to proxy, from the right, up to the first address that is no proxy of ours."""
        for hop in reversed(hops):
            parsed = parse_address(hop)
            if parsed is None:  # not an address: the proxy that said so is the last one that is known
                break
            address = str(parsed)
            if not self.is_trusted(address):
                break
        return address


def client_address(scope: MutableMapping[str, Any]) -> str:
    """Return the address of a request's client, as the middleware has found it out; empty if it has none."""
    source: RequestSource = scope["source"]
    return source.address


def is_https(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request's client speaks TLS, with this server or with a proxy in front of it."""
    source: RequestSource = scope["source"]
    return source.is_https


def without_forged(
    headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes], source: RequestSource
) -> list[tuple[bytes, bytes]]:
    """Take out headers that only a trusted proxy may send: all of them in requests of others, else those that come twice."""
    listed = list(headers)
    counts = Counter(name for name, _ in listed)
    return [pair for pair in listed if pair[0] not in names or (source.is_from_proxy and counts[pair[0]] == 1)]


def address_group(address: str) -> str:
    """Return what limits by address count together: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in address:
        return address
    parsed = parse_address(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed or address)


@lru_cache(4096)
def is_loopback(address: str) -> bool:
    parsed = parse_address(address)
    return parsed is not None and parsed.is_loopback


def plain_address(address: str) -> str:
    """Return an address without its zone, and an IPv4 address that came over an IPv6 socket as such."""
    if ":" not in address:
        return address
    parsed = parse_address(address)
    return address if parsed is None else str(parsed)


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address as headers have it, with or without a port; None: it is none."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        parsed = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise BadValue(
            "--trusted-proxy", text, f"an address or a network, as in 10.0.0.5 or 10.0.0.0/24, not a name ({error})"
        ) from None


def _listed(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Return the elements of a header that is a list and may come several times, in lower case: the first and the last ones."""
    values = [value for key, value in headers if key == name]
    elements = b",".join(values).decode("latin-1").split(",") if values else []
    if len(elements) > HOPS_MAX:
        elements = [elements[0], *elements[1 - HOPS_MAX :]]
    return [element.strip().lower() for element in elements]


def _parse_forwarded(element: str) -> dict[str, str]:
    """Parse one element of Forwarded (RFC 7239)."""
    pairs = (_FORWARDED_PAIR.fullmatch(part) for part in element.split(";"))
    return {pair[1]: pair[2].strip('"') for pair in pairs if pair is not None}
