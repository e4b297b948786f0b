#!/bin/sh
# PID 1 of the quick guest. Its root is the host's file system, read-only; what it
# leaves goes to the directory `share`. Runs `suite` by pytest and ends.
# Variables come from the kernel's command line (hil/uml/conftest.py), EDGED_RIGS too.
# shellcheck disable=SC2154
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t configfs configfs /sys/kernel/config
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mkdir /run/share /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t hostfs none /run/share -o "$share"
cd "$project" || exit
"$python" -m pytest -rA -p no:cacheprovider "$suite" \
    </dev/null >/run/share/log 2>&1
echo $? >/run/share/status
echo o >/proc/sysrq-trigger
# Ending before the power does would be a panic.
exec sleep 60
