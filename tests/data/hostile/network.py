"""No listener of the host, on any address or socket, and no road out."""

import os
import socket

port = int(os.environ["PORT"])
found = []
for family, address in (
    (socket.AF_INET, ("127.0.0.1", port)),
    (socket.AF_INET, ("0.0.0.0", port)),
    (socket.AF_INET6, ("::1", port)),
    (socket.AF_UNIX, os.environ["PLANT"] + "/socket"),
    (socket.AF_UNIX, "\0" + os.environ["ABSTRACT"]),
    (socket.AF_UNIX, "/run/dbus/system_bus_socket"),
    (socket.AF_UNIX, "/run/edged.sock"),
):
    with socket.socket(family) as client:
        client.settimeout(2)
        if client.connect_ex(address) == 0:
            found.append(address)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    if client.connect_ex(("192.0.2.1", 53)) == 0:
        found.append("route")
found += [name for _, name in socket.if_nameindex() if name.startswith(("eth", "en", "wl", "br"))]
print("ESCAPED:", found) if found else print("HELD")
