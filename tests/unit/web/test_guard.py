"""Which addresses are dialled: IANA's registries, and Python's reading of them."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import DeniedError
from edged.web.guard import Guard, embedded, is_global, parse_allowed

# IANA IPv4 Special-Purpose Address Registry, all entries whose "Globally Reachable" is
# False, and the ones that are reachable but are no web servers.
NOT_GLOBAL_4 = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32",
    "192.88.99.0/24", "224.0.0.0/4",
]  # fmt: skip
# IANA IPv6 Special-Purpose Address Registry, likewise, with multicast and site-local.
NOT_GLOBAL_6 = [
    "::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23",
    "2001::/32", "2001:2::/48", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16",
    "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "::/96",
]  # fmt: skip
GLOBAL = [
    "1.1.1.1", "8.8.8.8", "93.184.215.14", "192.31.196.1", "192.52.193.1", "192.175.48.1",
    "2606:4700:4700::1111", "2a00:1450:4001:82a::200e", "2620:4f:8000::1",
    # DNS64 answers so for every server with IPv4 alone (RFC 6147).
    "64:ff9b::5db8:d70e",
]  # fmt: skip


def inside(network):
    """Addresses of a network."""
    first, last = int(network.network_address), int(network.broadcast_address)
    kind = IPv4Address if network.version == 4 else IPv6Address
    return st.integers(first, last).map(kind)


def any_of(texts):
    return st.sampled_from([ip_network(text) for text in texts]).flatmap(inside)


@given(any_of(NOT_GLOBAL_4 + NOT_GLOBAL_6))
def test_no_address_of_a_special_range_is_reached(address):
    """IANA's registries; picoclaw #3077 (198.18/15), and what it left open."""
    assert not is_global(address)
    assert not Guard().permits(str(address))


@pytest.mark.parametrize("text", GLOBAL)
def test_servers_of_the_internet_are_reached(text):
    assert Guard().permits(text)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_what_python_calls_private_is_never_reached(address):
    """`ipaddress` follows the registry; ours refuses no less. Multicast is no server."""
    if not address.is_global or address.is_multicast:
        assert not is_global(address)
    elif not is_global(address):
        assert any(address in IPv4Network(n) for n in ("192.0.0.0/24", "192.88.99.0/24"))


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_what_python_calls_private_is_never_reached_by_ipv6(address):
    if embedded(address) is None and (not address.is_global or address.is_multicast):
        assert not is_global(address)


@given(any_of(["2000::/3"]))
def test_global_unicast_is_reached_unless_a_registry_says_otherwise(address):
    special = any(address in IPv6Network(n) for n in NOT_GLOBAL_6)
    assert is_global(address) != special


@given(any_of(NOT_GLOBAL_4))
def test_a_private_address_does_not_pass_in_the_clothes_of_ipv6(address):
    """RFC 4291 mapped, RFC 6052 NAT64, RFC 3056 6to4, RFC 4380 Teredo, IPv4-compatible."""
    number = int(address)
    for whole in (
        (0xFFFF << 32) | number,
        int(IPv6Address("64:ff9b::")) | number,
        int(IPv6Address("2002::")) | number << 80,
        int(IPv6Address("2001::")) | (number ^ 0xFFFF_FFFF),
        number,
    ):
        assert not Guard().permits(str(IPv6Address(whole)))


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_a_mapped_address_is_what_is_in_it(address):
    """Linux dials the IPv4 address (ipv6(7), IPv4-mapped addresses)."""
    guard = Guard()
    assert guard.permits(f"::ffff:{address}") == guard.permits(str(address))


@given(any_of(["192.168.0.0/16"]))
def test_a_listed_network_is_reached_and_no_other(address):
    """Picoclaw #1667: a device of the own network, by address or network."""
    guard = Guard(parse_allowed(["192.168.7.0/24", "10.0.0.9"]))
    assert guard.permits(str(address)) == (address in IPv4Network("192.168.7.0/24"))
    assert guard.permits(f"::ffff:{address}") == guard.permits(str(address))
    assert guard.permits("10.0.0.9")
    assert not guard.permits("10.0.0.8")


@pytest.mark.parametrize("entry", ["printer.local", "", "10.0.0.0/33", "http://10.0.0.1"])
def test_a_list_holds_addresses_and_networks_alone(entry):
    """A name would be whatever its DNS server says today."""
    with pytest.raises(ValueError, match="is no address or network"):
        parse_allowed([entry])


@pytest.mark.parametrize("text", ["fe80::1%eth0", "localhost", "", "127.1", "0x7f000001"])
def test_what_is_no_plain_global_address_is_refused(text):
    assert not Guard().permits(text)


def test_only_the_permitted_addresses_of_a_host_are_left():
    found = Guard().checked("both.example", ["10.0.0.1", "93.184.215.14", "::1"])
    assert found == ["93.184.215.14"]


def test_a_refusal_says_what_and_what_to_do():
    with pytest.raises(DeniedError) as told:
        Guard().checked("router.lan", ["192.168.1.1"])
    assert "router.lan (192.168.1.1)" in str(told.value)
    assert "tools.web.private_host_whitelist" in str(told.value)
    assert ip_address("192.168.1.1").is_private
