"""Load, memory, temperature, disk, uptime and, on a Raspberry Pi, throttling."""

import os

THERMAL = "/sys/class/thermal/thermal_zone0/temp"
THROTTLED = "/sys/devices/platform/soc/soc:firmware/get_throttled"

# Bits of the firmware's get_throttled (Raspberry Pi documentation, vcgencmd).
FLAGS = {
    0: "undervoltage now",
    1: "frequency capped now",
    2: "throttled now",
    3: "soft temperature limit now",
    16: "undervoltage since boot",
    17: "frequency capped since boot",
    18: "throttled since boot",
    19: "soft temperature limit since boot",
}


def read(path):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def memory():
    """Total and available bytes (proc(5), meminfo counts in KiB)."""
    rows = dict(line.split(":", 1) for line in read("/proc/meminfo").splitlines())
    return [int(rows[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable")]


def flags(text):
    bits = int(text, 16)
    return [word for bit, word in FLAGS.items() if bits >> bit & 1]


def span(seconds):
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    return f"{days} d " * (days > 0) + f"{hours} h {rest // 60} min"


def execute(tool_call_id, params, signal=None, on_update=None):
    load = [float(part) for part in read("/proc/loadavg").split()[:3]]
    total, available = memory()
    disk = os.statvfs(os.environ["OFFICER_USER_ROOT"] + "/workspace")
    disk_total, disk_free = disk.f_frsize * disk.f_blocks, disk.f_frsize * disk.f_bavail
    uptime = float(read("/proc/uptime").split()[0])
    facts = {
        "load": load,
        "cpus": os.cpu_count(),
        "memory_total": total,
        "memory_available": available,
        "disk_total": disk_total,
        "disk_free": disk_free,
        "uptime_s": uptime,
    }
    lines = [
        "load {:.2f} {:.2f} {:.2f} on {} cores".format(*load, facts["cpus"]),
        f"memory {available >> 20} MiB free of {total >> 20} MiB",
        f"disk {disk_free / 1e9:.1f} GB free of {disk_total / 1e9:.1f} GB",
        f"up {span(uptime)}",
    ]
    heat = read(THERMAL)
    if heat:
        # Millidegrees (kernel, sysfs-class-thermal).
        facts["temperature_cel"] = int(heat) / 1000
        lines.append(f"temperature {facts['temperature_cel']:.1f} °C")
    throttled = read(THROTTLED)
    if throttled:
        facts["throttled"] = flags(throttled)
        lines.append("power and heat: " + (", ".join(facts["throttled"]) or "no throttling"))
    return {
        "content": [{"type": "text", "text": "\n".join(lines)}],
        "structuredContent": facts,
    }
