"""Addresses of webhooks: which URLs may be set, and which addresses may be connected to.

Laws:
- The name is resolved once for each call, and the address that was checked is the one that is connected to.
- An address is refused unless it belongs to the public internet, in whatever IPv6 form it is written.
- A name that does not exist and one that leads inside give the same sentence: customers must not learn which names exist in
  the network of the service.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from fairlane.core.errors import BadValue
from fairlane.masking import mask_url

# What `ipaddress` takes for public, in some version of Python, and is not: services of a cloud that only its own machines
# reach, and ranges that are no host's address.
SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "100.64.0.0/10",  # shared address space; Alibaba's metadata at 100.100.100.200
            "161.26.0.0/16",  # services of IBM Cloud, for its own machines
            "166.8.0.0/14",  # the same
            "168.63.129.16/32",  # Azure's host: DHCP, DNS, and the agent's secrets
            "169.254.0.0/16",  # metadata of nearly every cloud
            "192.0.0.0/24",  # protocol assignments; Oracle's metadata at 192.0.0.192
            "192.80.8.124/32",  # Equinix Metal's metadata
            "192.88.99.0/24",  # relays of 6to4
            "198.18.0.0/15",  # benchmarks
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which embeds an IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")  # fd00:ec2::254 and fd20:ce::254, metadata over IPv6, are not in it
NAT64 = ipaddress.ip_network("64:ff9b::/96")  # the last 32 bits are the IPv4 address that is reached
ISATAP = (0x00005EFE, 0x02005EFE)  # bits 64 to 95: the last 32 bits are an IPv4 address


class AddressRefused(Exception):
    """The webhook's address must not be called."""


def validate_url(url: str) -> None:
    """Refuse a URL that cannot be called."""
    expected = "an address such as https://example.com/fairlane, without a user, of at most 2,000 characters"
    try:
        parts = urlsplit(url)
        is_valid = bool(
            parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.password
            and (parts.port is None or 1 <= parts.port <= 65535) and len(url) <= 2000 and url.isascii() and url.isprintable()
            and " " not in url
        )  # fmt: skip
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BadValue("url", mask_url(url), expected)


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return is_public(str(parsed.ipv4_mapped))
        if parsed in NAT64:
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
        if parsed not in GLOBAL_UNICAST or int(parsed) >> 32 & 0xFFFFFFFF in ISATAP:
            return False
    if any(parsed in network for network in SPECIAL):
        return False
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


def resolve(host: str, port: int, allow_private: bool) -> tuple[str, int]:
    """Return the address to connect to; refused if any that the name has is not public."""
    try:
        addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        addresses = []
    if not addresses or (not allow_private and not all(map(is_public, addresses))):
        raise AddressRefused(f"{host} leads to no address that is public")
    return addresses[0], port
