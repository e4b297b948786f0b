#!/bin/sh
# Makes the disk of the systemd guest: Debian with systemd, bubblewrap and Python, what edged
# depends on in the environment that the README makes, and the test's own relay and agent.
# edged itself is installed in the guest. Two minutes; nothing when OUT has it already.
#
#   build-disk.sh OUT SUITE     OUT gets disk, an ext4 file system in a sparse file
set -eu
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
suite=$2
python=${PYTHON:-$project/.venv/bin/python}
say() { printf 'tests/system: %s\n' "$*" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

needs=$("$python" -c 'import sys, tomllib; print(*tomllib.load(sys.stdin.buffer)["project"]["dependencies"], sep="\n")' \
    <"$project/pyproject.toml")
made_from=$(find "$here/guest" "$project/hil/guest/agent.py" -type f | LC_ALL=C sort |
    xargs cat "$0" | { cat; echo "$needs"; } | sha256sum)
if [ "$(cat "$out/made-from" 2>/dev/null)" = "$made_from" ]; then
    exit 0
fi
rm -f "$out/made-from"

missing=
for package in mmdebstrap e2fsprogs; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
if [ -n "$missing" ]; then
    say "installing$missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq \
        --no-install-recommends $missing >/dev/null
fi

# This machine's own, where it has Debian's archive.
# shellcheck disable=SC2016  # apt's variable
mirror=${HIL_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)}
if [ -z "$mirror" ]; then
    say "no Debian mirror in apt's lists: apt-get update, or set HIL_MIRROR to one"
    exit 1
fi

tree=$out/tree
trap 'as_root rm -rf "$tree" "$out/wheels"' EXIT
as_root rm -rf "$tree" "$out/wheels"
say "fetching Debian $suite"
# With a machine-id, its first boot is none that systemd would enable every unit at.
as_root nice mmdebstrap --quiet --mode=root --variant=essential --format=directory \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/i18n/*' \
    --include=systemd-sysv,kmod,bubblewrap,python3,python3-venv \
    --customize-hook="cp -r '$here/guest/.' \"\$1/\"" \
    --customize-hook="cp '$project/hil/guest/agent.py' \"\$1/usr/local/lib/\"" \
    --customize-hook='systemctl --quiet --root "$1" enable agent.service relays.service \
        run-share.mount' \
    --customize-hook='systemctl --quiet --root "$1" mask getty-static.service getty@tty1.service systemd-logind.service \
        apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
        e2scrub_reap.service fstrim.timer systemd-timesyncd.service systemd-pstore.service' \
    --customize-hook='echo board >"$1/etc/hostname"; echo 127.0.0.1 localhost board >"$1/etc/hosts"' \
    --customize-hook='echo 5e1f0a3c9b7d4e2f8a6c1d0b3e5f7a91 >"$1/etc/machine-id"' \
    --customize-hook='chroot "$1" python3 -m venv /opt/edged' \
    "$suite" "$tree" "deb $mirror $suite main"

version=$(basename "$tree"/opt/edged/lib/python3.* | sed 's/^python//')
say "fetching what edged needs, for Python $version"
echo "$needs" >"$out/needs"
"$python" -m pip download -qq --disable-pip-version-check --only-binary :all: \
    --python-version "$version" --dest "$out/wheels" --requirement "$out/needs"
as_root cp -r "$out/wheels" "$out/needs" "$tree/tmp/"
as_root chroot "$tree" /opt/edged/bin/pip install -qq --disable-pip-version-check \
    --root-user-action ignore --no-index --find-links /tmp/wheels --requirement /tmp/needs
as_root rm -r "$tree/tmp/wheels" "$tree/tmp/needs" "$tree/var/lib/apt/lists" "$tree/var/cache/apt"

say "making the disk"
rm -f "$out/disk"
as_root mke2fs -q -t ext4 -d "$tree" -E root_owner=0:0 "$out/disk" 2G >/dev/null
printf '%s\n' "$made_from" >"$out/made-from"
