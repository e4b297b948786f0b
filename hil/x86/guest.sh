#!/bin/sh
# PID 1 of the x86 guest, once its root is mounted: devices, udev, one run of pytest, the end.
# Variables come from the kernel's command line (hil/x86/conftest.py), EDGED_RIGS too.
# shellcheck disable=SC2154
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs run /run
mkdir -p /dev/pts /dev/shm /run/share
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /run/share
for module in virtio_console virtio_rng xhci_pci i2c-dev uhid hid-cp2112; do
    modprobe "$module"
done
# Devices of the emulated PC stay without drivers: no bus is there that the tests did not plug in.
/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --subsystem-match=virtio-ports
udevadm settle
cd "$project" || exit
echo "the guest is up after $(cut -d ' ' -f 1 /proc/uptime) s" >/run/share/log
# shellcheck disable=SC2046  # a list of words
"$python" -m pytest -rA --durations=10 -o timeout=600 -p no:cacheprovider --junit-xml /run/share/report.xml \
    $(echo "$suites" | tr , ' ') </dev/null >>/run/share/log 2>&1
sync
echo o >/proc/sysrq-trigger
# To end before the power does would be a panic, and programs cannot be read any more.
while :; do :; done
