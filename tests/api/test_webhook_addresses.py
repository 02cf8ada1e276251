"""Addresses of webhooks: only the public internet, in whatever writing, and nothing that a cloud keeps for its own machines."""

from __future__ import annotations

import ipaddress

import pytest

from fairlane.api.webhook_addresses import AddressRefused, is_public, resolve, validate_url
from fairlane.core.errors import BadValue

NOT_PUBLIC = {
    "this machine": ["127.0.0.1", "127.255.255.254", "0.0.0.0", "::1", "::", "::7f00:1"],
    "private networks": ["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fd12:3456::1", "fec0::1"],
    "link-local": ["169.254.1.1", "fe80::1%eth0", "fe80::a9fe:a9fe"],
    "shared, reserved, multicast": [
        "100.64.0.1", "100.127.255.255", "198.18.0.1", "198.19.255.255", "240.0.0.1", "255.255.255.255", "224.0.0.1", "ff02::1",
        "192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1", "192.88.99.1", "100::1", "5f00::1", "4000::1",
    ],
    "metadata and hosts of clouds": [
        "169.254.169.254",  # Amazon, Google, Azure, Oracle, DigitalOcean, Hetzner, OpenStack
        "169.254.170.2",  # Amazon ECS
        "169.254.42.42",  # Scaleway
        "169.254.0.23",  # Tencent
        "fd00:ec2::254",  # Amazon over IPv6
        "fd20:ce::254",  # Google over IPv6
        "fd00:42::42",  # Scaleway over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's host
        "192.0.0.192",  # Oracle, the old one
        "192.80.8.124",  # Equinix Metal
        "161.26.0.10", "166.8.0.1", "166.11.255.254",  # IBM
    ],
    "IPv4 addresses inside IPv6 ones": [
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:168.63.129.16",  # mapped
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a83f:8110", "64:ff9b::a00:1",  # NAT64
        "64:ff9b:1::1", "64:ff9b:1::5db8:d822",  # NAT64 of a network of its own
        "2002:7f00:1::", "2002:a9fe:a9fe::", "2002:5db8:d822::1",  # 6to4
        "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo
        "2606:2800::5efe:a00:1", "2606:2800::200:5efe:7f00:1",  # ISATAP
    ],
}  # fmt: skip
PUBLIC = [
    "93.184.216.34", "168.63.129.15", "168.63.129.17", "161.25.255.255", "166.7.255.255", "166.12.0.0", "100.63.255.255",
    "100.128.0.0", "192.0.1.1", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34", "64:ff9b::5db8:d822",
]  # fmt: skip


@pytest.mark.parametrize("address", [address for listed in NOT_PUBLIC.values() for address in listed])
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", [address for listed in NOT_PUBLIC.values() for address in listed if "." in address])
def test_no_ipv6_form_of_a_refused_address_is_public(address: str) -> None:
    number = int(ipaddress.IPv4Address(address.rpartition(":")[2]))
    for prefix, bits in (("::ffff:0:0", 0), ("64:ff9b::", 0), ("64:ff9b:1::", 0), ("::", 0), ("2002::", 80)):
        assert not is_public(str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | number << bits)))


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1", "127.0.0.1", "0177.0.0.1", "[::1]", "::1"])
def test_names_of_this_machine_in_whatever_writing_are_refused(host: str) -> None:
    with pytest.raises(AddressRefused, match="leads to no address that is public"):
        resolve(host, 80, allow_private=False)


@pytest.mark.parametrize(
    "url",
    ["", "example.com", "ftp://example.com", "https://", "https://user:word@example.com", "https://example.com:0",
     "https://example.com:99999", "https://example.com/ x", "https://exämple.com", "https://example.com/\r\nX: y",
     "https://[::1", "javascript:alert(1)", "https://example.com/" + 2000 * "x"],
)  # fmt: skip
def test_what_is_no_address_is_refused_when_it_is_set(url: str) -> None:
    with pytest.raises(BadValue):
        validate_url(url)
