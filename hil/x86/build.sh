#!/bin/sh
# Makes what the x86 guest boots: Debian's own kernel, an initramfs that reaches this machine's
# root file system, and a layer of what the guest needs beside it. Nothing is installed here but
# the emulator. Half a minute; nothing when OUT has it already.
#
#   build.sh OUT     OUT gets vmlinuz, initrd and layer/ (modules, udev, busybox)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
say() { printf 'hil: %s\n' "$*" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

made_from=$(cat "$0" "$here/init" | sha256sum)
if [ "$(cat "$out/made-from" 2>/dev/null)" = "$made_from" ]; then
    exit 0
fi
rm -f "$out/made-from"

if [ "$(uname -m)" != x86_64 ]; then
    say "the x86 guest runs this machine's own Python: it needs an x86-64 machine"
    exit 1
fi
missing='' fresh=''
for package in qemu-system-x86 kmod cpio xz-utils; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
if [ -n "$missing" ]; then
    say "installing$missing"
    as_root apt-get update -qq
    fresh=yes
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq \
        --no-install-recommends $missing >/dev/null
fi

say "fetching Debian's kernel"
[ -n "$fresh" ] || as_root apt-get update -qq
kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
if [ -z "$kernel" ]; then
    say "apt knows no linux-image-amd64: the guest has the kernel of Debian"
    exit 1
fi
debs=$out/debs
rm -rf "$debs" "$out/layer" "$out/stage"
mkdir "$debs" "$out/layer" "$out/stage"
# udev with its libraries, for this machine's may be missing or of another version.
(cd "$debs" && apt-get download -qq -o APT::Sandbox::User=root "$kernel" busybox-static kmod libkmod2 \
    udev libudev1 libacl1 libapparmor1 libblkid1 libcap2 libselinux1)
for deb in "$debs"/*.deb; do
    # This machine's /lib is a link to /usr/lib, which a directory of a layer would hide.
    dpkg-deb --fsys-tarfile "$deb" | tar x -C "$out/layer" --no-same-owner \
        --transform 's,^\./\(bin\|sbin\|lib\)/,./usr/\1/,Sh' --exclude './usr/share/*' \
        --exclude '*/kernel/drivers/gpu' --exclude '*/kernel/drivers/media' \
        --exclude '*/kernel/drivers/net' --exclude '*/kernel/drivers/scsi' \
        --exclude '*/kernel/sound'
done
rm -rf "$debs"
for name in bin sbin lib; do
    [ ! -d "$out/layer/$name" ] || rmdir "$out/layer/$name"
done
mv "$out"/layer/boot/vmlinuz-* "$out/vmlinuz"
rm -rf "$out/layer/boot"
release=$(basename "$out"/layer/usr/lib/modules/*)
depmod -b "$out/layer/usr" "$release"

# The initramfs has no more than it takes to mount the root.
stage=$out/stage
mkdir -p "$stage/bin" "$stage/modules"
cp "$out"/layer/usr/bin/busybox "$stage/bin/"
install -m 755 "$here/init" "$stage/init"
for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe -d "$out/layer/usr" -S "$release" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
    name=$(basename "$file")
    case $file in
    *.xz) xz -dc "$file" >"$stage/modules/${name%.xz}" ;;
    *) cp "$file" "$stage/modules/" ;;
    esac
    echo "${name%.xz}" >>"$stage/modules/order"
done
(cd "$stage" && find . | LC_ALL=C sort | cpio --quiet --create --format newc --owner 0:0) \
    >"$out/initrd"
rm -rf "$stage"
printf '%s\n' "$made_from" >"$out/made-from"
