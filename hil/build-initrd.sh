#!/bin/sh
# Packs the emulated board's files into an initramfs: no disk, no root on this machine.
# It is not compressed, for QEMU loads it as it is and the emulated CPU need not unpack it.
# What comes from Debian is packed once; edged itself, as in its wheel, at every run.
#
#   build-initrd.sh OUT   from what build-root.sh left there: OUT/initrd, OUT/vmlinuz, OUT/dtb
set -eu
here=$(cd "$(dirname "$0")" && pwd)
project=$(dirname "$here")
out=$(cd "$1" && pwd)
# Of the kernel's modules only these; guest/init loads them.
modules="i2c-imx i2c-dev spi-imx gpio-mxc fec micrel lm75"
programs="sh awk cat chmod cp cut date dd dmesg echo env find grep head id ip kill ln ls mkdir
    mount mv nc poweroff ps rm sed sleep stty tail test timeout tr umount wc"
say() { printf 'hil: %s\n' "$*" >&2; }
pack() (
    cd "$1"
    find . | LC_ALL=C sort | cpio --quiet --create --format newc --owner 0:0
)

# Bytecode is the same on every CPU: compiled here it saves the emulated one many seconds a start.
compile() {
    loader=$(echo "$out"/host/usr/lib/*/ld-linux*.so.*)
    PYTHONHOME=$out/host/usr nice "$loader" --library-path "$(dirname "$loader")" \
        "$out"/host/usr/bin/python3.* -m compileall -q \
        --invalidation-mode unchecked-hash -s "$1" -p / "$1/usr/lib"
}

pack_system() {
    stage=$out/stage
    kernel=$(basename "$out"/root/usr/lib/modules/*)
    kept=$stage/usr/lib/modules/$kernel
    rm -rf "$stage"
    mkdir -p "$kept" "$stage/dev" "$stage/proc" "$stage/sys"
    tar c -C "$out/root" --exclude=usr/include --exclude=usr/lib/modules \
        --exclude='usr/lib/linux-image-*' --exclude=usr/lib/systemd --exclude=usr/lib/udev \
        --exclude='usr/lib/*/systemd' --exclude='usr/lib/*/perl*' --exclude=usr/share/perl \
        --exclude='usr/lib/*/gconv' --exclude=usr/lib/locale --exclude='*.a' --exclude='*.o' \
        bin sbin lib etc usr | tar x -C "$stage"
    cp -r "$out/site/." "$stage/usr/lib/python3/dist-packages/"

    [ -e "$out/root/usr/lib/modules/$kernel/modules.dep" ] || depmod -b "$out/root/usr" "$kernel"
    cp "$out/root/usr/lib/modules/$kernel"/modules.builtin* \
        "$out/root/usr/lib/modules/$kernel/modules.order" "$kept/"
    for module in $modules; do
        modprobe -d "$out/root/usr" -S "$kernel" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | while read -r file; do
        to=$kept/${file#*"/modules/$kernel/"}
        mkdir -p "$(dirname "$to")"
        case $file in
        *.xz) xz -dc "$file" >"${to%.xz}" ;;
        *) cp "$file" "$to" ;;
        esac
    done
    depmod -b "$stage/usr" "$kernel"

    for program in $programs; do
        [ -e "$stage/usr/bin/$program" ] || ln -s busybox "$stage/usr/bin/$program"
    done
    ln -sf kmod "$stage/usr/bin/modprobe"
    [ -e "$stage/usr/bin/python3" ] ||
        ln -s "$(basename "$out"/root/usr/bin/python3.*)" "$stage/usr/bin/python3"
    # As edged's package makes them.
    printf '%s\n' root:x:0:0:root:/root:/bin/sh edged-tool:x:990:990::/:/usr/sbin/nologin \
        >"$stage/etc/passwd"
    printf '%s\n' root:x:0: edged:x:991: edged-tool:x:990: >"$stage/etc/group"
    install -m 755 "$here/guest/init" "$stage/init"
    install -m 644 "$here/guest/agent.py" "$stage/agent.py"
    compile "$stage"
    pack "$stage" >"$out/system.cpio"
    cp "$out"/root/boot/vmlinuz-* "$out/vmlinuz"
    rm -rf "$stage"
}

pack_edged() {
    stage=$out/stage
    packages=$stage/usr/lib/python3/dist-packages
    rm -rf "$stage"
    mkdir -p "$packages"
    tar c -C "$project" --exclude=__pycache__ edged | tar x -C "$packages"
    cp -r "$project/seed" "$packages/edged/seed"
    # The conformance suite and its rig.
    tar c -C "$project" --exclude=__pycache__ pyproject.toml tests/conformance hil/bench.py \
        hil/guest/bench.yaml hil/guest/rig.py | tar x -C "$stage" --one-top-level=suite
    compile "$stage"
    pack "$stage" >"$out/edged.cpio"
    rm -rf "$stage"
}

made_from=$(cat "$out/root.made-from" "$0" "$here/guest/init" "$here/guest/agent.py" | sha256sum)
if [ "$(cat "$out/system.made-from" 2>/dev/null)" != "$made_from" ]; then
    say "packing the board's system"
    rm -f "$out/system.made-from"
    pack_system
    printf '%s\n' "$made_from" >"$out/system.made-from"
fi
pack_edged
# The kernel unpacks one archive after the other.
cat "$out/system.cpio" "$out/edged.cpio" >"$out/initrd"
sh "$here/boards/sabrelite.sh" dtb "$out/root" "$out/dtb"
