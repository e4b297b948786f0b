#!/bin/sh
# Builds the User Mode Linux kernel of the quick guest from Debian's own source
# package: Debian's ready kernels have no gpio-sim. 4 to 7 minutes on two cores;
# nothing when OUT has one that was built from the same files.
#
#   build-kernel.sh OUT      OUT gets `linux` and its modules, *.ko
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
say() { printf 'hil/uml: %s\n' "$*" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

made_from=$(cat "$here/kernel.config" "$here/build-kernel.sh" | sha256sum)
if [ -x "$out/linux" ] && [ "$(cat "$out/made-from" 2>/dev/null)" = "$made_from" ]; then
    exit 0
fi

missing=
for package in build-essential flex bison bc kmod; do
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

source=$(apt-cache depends linux-source | sed -n 's/.*Depends: \(linux-source-[0-9.]*\)$/\1/p')
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
say "fetching $source"
apt-get download -qq "$source" 2>/dev/null
dpkg-deb --fsys-tarfile "$source"_*.deb | tar xO "./usr/src/$source.tar.xz" | tar xJ
rm "$source"_*.deb
cd "$source"
say "building the kernel"
make -s ARCH=um tinyconfig >/dev/null
scripts/kconfig/merge_config.sh -m .config "$here/kernel.config" >/dev/null
make -s ARCH=um olddefconfig
# What the merge dropped is a hole in the guest: name it.
grep '^CONFIG_' "$here/kernel.config" | while read -r line; do
    grep -qxF "$line" .config || { say "the kernel dropped $line"; exit 1; }
done
nice make -s ARCH=um -j"$(nproc)" >"$out/build.log" 2>&1 || { tail "$out/build.log" >&2; exit 1; }
find . -name '*.ko' -exec cp {} "$out/" \;
cp linux "$out/linux"
printf '%s\n' "$made_from" >"$out/made-from"
