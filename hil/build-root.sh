#!/bin/sh
# Unpacks what the emulated board runs: Debian's armhf kernel and Python, and edged's
# dependencies. Nothing of it is executed here, so that neither a foreign architecture nor
# qemu-user is needed on this machine. About two minutes; nothing when OUT has it already.
#
#   build-root.sh OUT     OUT gets root/ (the board's files), site/ (what Debian has no
#                         package of) and host/: for this machine QEMU, and the same Python
#                         to compile bytecode
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
suite=trixie
python=${PYTHON:-$here/../.venv/bin/python}
say() { printf 'hil: %s\n' "$*" >&2; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# The tests' own.
msgspec=$("$python" -c 'import msgspec; print(msgspec.__version__)')
made_from=$(echo "$msgspec" | cat "$0" - | sha256sum)
if [ "$(cat "$out/root.made-from" 2>/dev/null)" = "$made_from" ]; then
    exit 0
fi

missing=
for package in mmdebstrap uidmap kmod cpio device-tree-compiler xz-utils gcc-arm-linux-gnueabihf; do
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

# unpack DIR PACKAGES [OPTION ...]: a tree of Debian packages, unpacked only. By way of a tar,
# so that a plain user owns the files.
unpack() {
    dir=$1 packages=$2
    shift 2
    rm -rf "$dir"
    mkdir "$dir"
    nice mmdebstrap --quiet --variant=extract --skip=output/dev \
        --aptopt='APT::Install-Recommends "false"' --include="$packages" "$@" \
        "$suite" "$out/unpacked.tar" "deb $mirror $suite main"
    tar xf "$out/unpacked.tar" -C "$dir" --no-same-owner \
        --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale \
        --exclude=./usr/share/zoneinfo
    rm "$out/unpacked.tar"
    # Debian's base-files has these links from a script of its own.
    for name in bin sbin lib; do [ -e "$dir/$name" ] || ln -s "usr/$name" "$dir/$name"; done
}

rm -f "$out/root.made-from"
say "fetching the board's system"
unpack "$out/root" \
    linux-image-armmp,bash,bubblewrap,busybox-static,kmod,i2c-tools,gpiod,python3,python3-aiohttp,python3-pytest,python3-pytest-asyncio,python3-pytest-timeout,python3-serial,python3-smbus2,python3-spidev,python3-yaml,libpython3-dev \
    --architectures=armhf
version=$(basename "$out"/root/usr/include/python3.*)
# Not this machine's own QEMU: before 9.1 the UART of this board loses what it receives
# under kernels from 6.3 on, which take it for a flood of noise.
say "fetching QEMU and $version for this machine"
unpack "$out/host" "qemu-system-arm,$version-minimal,lib$version-stdlib"

# There is no package of msgspec, and no wheel for this architecture.
say "building msgspec"
rm -rf "$out/site" "$out/msgspec"
mkdir "$out/site" "$out/msgspec"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
    --dest "$out/msgspec" "msgspec==$msgspec"
tar xzf "$out"/msgspec/*.tar.gz -C "$out/msgspec" --strip-components 1
cp -r "$out/msgspec/src/msgspec" "$out/site/"
nice arm-linux-gnueabihf-gcc --sysroot="$out/root" -I "$out/root/usr/include/$version" \
    -O2 -shared -fPIC "$out/msgspec/src/msgspec/_core.c" -o "$out/site/msgspec/_core.so"
rm -rf "$out/msgspec"

printf '%s\n' "$made_from" >"$out/root.made-from"
