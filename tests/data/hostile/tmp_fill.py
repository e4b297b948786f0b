"""What lies in memory as files stays small, all directories together."""

total = 0
for folder in ("/tmp", "/dev/shm", "/dev", "/", "/run", "/var/tmp"):
    try:
        with open(folder + "/fill", "wb", buffering=0) as file:
            for _ in range(300):
                total += file.write(bytes(1 << 20))
    except OSError:
        continue
print("ESCAPED:", total >> 20) if total >= 300 << 20 else print("HELD")
