"""Which addresses `web_fetch` may reach: global ones, and those that the owner lists.

Pure: knows no sockets. A page chooses the URLs that an agent is led to; without this
it could read what only the board and its network may (server-side request forgery).

Source: IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890), read as: what
is not globally reachable, or has no use as a web server, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from edged.errors import DeniedError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SETTING = "tools.web.private_host_whitelist"

_REFUSED_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network, RFC 791
        "10.0.0.0/8",  # private, RFC 1918
        "100.64.0.0/10",  # shared by a provider's customers, RFC 6598
        "127.0.0.0/8",  # loopback, RFC 1122
        "169.254.0.0/16",  # link-local, and where clouds keep their secrets, RFC 3927
        "172.16.0.0/12",  # private, RFC 1918
        "192.0.0.0/24",  # protocol assignments, RFC 6890
        "192.0.2.0/24",  # documentation, RFC 5737
        "192.88.99.0/24",  # 6to4 relays, RFC 7526
        "192.168.0.0/16",  # private, RFC 1918
        "198.18.0.0/15",  # benchmarks, RFC 2544
        "198.51.100.0/24",  # documentation, RFC 5737
        "203.0.113.0/24",  # documentation, RFC 5737
        "224.0.0.0/4",  # multicast, RFC 5771
        "240.0.0.0/4",  # reserved, with the broadcast address, RFC 1112
    )
)

_GLOBAL_6 = IPv6Network("2000::/3")
"""Global unicast: all that is allotted (RFC 4291, section 2.4, and IANA's allocations)."""

_REFUSED_6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, with Teredo, which hides an IPv4 address
        "2001:db8::/32",  # documentation, RFC 3849
        "2002::/16",  # 6to4, which hides an IPv4 address, RFC 3056
        "3fff::/20",  # documentation, RFC 9637
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
"""Stands for IPv4 on networks that have only IPv6 (RFC 6052); its last 32 bits say which."""


def parse_allowed(entries: Iterable[str]) -> tuple[Network, ...]:
    """The networks of a list of addresses and networks.

    Raises:
        ValueError: one is neither; says which.
    """
    found: list[Network] = []
    for entry in entries:
        try:
            found.append(ip_network(entry.strip(), strict=False))
        except ValueError:
            raise ValueError(
                f"{entry[:60]!r} is no address or network: write 192.168.1.20 or 192.168.1.0/24"
            ) from None
    return tuple(found)


def is_global(address: Address) -> bool:
    """Whether an address may be a web server of the internet's."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_4)
    inner = embedded(address)
    if inner is not None:
        return is_global(inner)
    return address in _GLOBAL_6 and not any(address in network for network in _REFUSED_6)


def embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a kernel or a translator would really dial; None: none.

    Source: RFC 4291, section 2.5.5.2 (mapped); RFC 6052, section 2.1 (NAT64).
    """
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def is_near(host: str) -> bool:
    """Whether a host of a URL is on this board or its network, as far as its name tells."""
    try:
        return not is_global(ip_address(host))
    except ValueError:
        return "." not in host


class Guard:
    """Decides about addresses; any thread.

    Args:
        allowed: networks that are reached although they are not global.
    """

    def __init__(self, allowed: tuple[Network, ...] = ()) -> None:
        self._allowed = allowed

    def permits(self, text: str) -> bool:
        """Whether an address as a resolver writes it may be dialled."""
        try:
            address = ip_address(text.partition("%")[0])
        except ValueError:
            return False
        if is_global(address):
            return True
        inner = embedded(address) if isinstance(address, IPv6Address) else None
        return any(one in network for one in (address, inner) if one for network in self._allowed)

    def check_literal(self, host: str) -> None:
        """Refuse an address that is written in a URL: it has no resolver to pass.

        Args:
            host: as it goes to the connector; a name counts for nothing.

        Raises:
            DeniedError: it may not be dialled.
        """
        host = host.strip("[]")
        if ":" in host or host.replace(".", "").isdigit():
            self.checked(host, [host])

    def checked(self, host: str, addresses: Iterable[str]) -> list[str]:
        """Those addresses of a host that may be dialled.

        Raises:
            DeniedError: none of them may.
        """
        given = list(addresses)
        found = [address for address in given if self.permits(address)]
        if given and not found:
            where = host if host == given[0] else f"{host} ({', '.join(given[:3])})"
            raise DeniedError(
                f"{where[:300]} is not reached: it is no address of the public internet; "
                f"the owner may list its address or network in {SETTING}"
            )
        return found
