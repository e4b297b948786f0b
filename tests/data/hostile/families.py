"""Socket families that pass network namespaces, or are large in the kernel, are refused."""

import errno
import socket

found = []
refused = {errno.EAFNOSUPPORT, errno.EPERM, errno.EPROTONOSUPPORT}
families = {"packet": 17, "alg": 38, "vsock": 40, "xdp": 44, "can": 29, "bluetooth": 31, "smc": 43}
for name, family in families.items():
    try:
        socket.socket(family, socket.SOCK_RAW if name == "packet" else socket.SOCK_STREAM).close()
    except OSError as error:
        if error.errno in refused:
            continue
        found.append((name, error.errno))
        continue
    found.append(name)
print("ESCAPED:", found) if found else print("HELD")
