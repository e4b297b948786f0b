#!/bin/sh
# The emulated board: QEMU's i.MX6 SABRE Lite with chips on its buses. It has three I2C
# controllers, SPI with a flash on a real chip select (GPIO3_19), GPIO with interrupts, UARTs
# and Ethernet.
#
#   sabrelite.sh dtb ROOT DTB         its device tree, from the kernel's below ROOT
#   sabrelite.sh run OUT RUN PORT HTTP [OPTION ...]
#       starts it with OUT/vmlinuz, OUT/initrd and OUT/dtb by the QEMU in OUT/host; its sockets
#       and its console are in the directory RUN; local ports lead to the agent and to edged's
#       HTTP listener; options are QEMU's
set -eu
spba=/soc/bus@2000000/spba-bus@2000000
aips=/soc/bus@2100000

put() { fdtput -t s "$dtb" "$@"; }
drop() { fdtput -d "$dtb" "$@" 2>/dev/null || true; }

patched_dtb() {
    dtb=$2.new
    cp "$(find "$1/usr/lib" -name imx6q-sabrelite.dtb)" "$dtb"
    # A name that the kernel's spidev takes, in place of the flash's own driver.
    put $spba/spi@2008000/flash@0 compatible rohm,dh2228fv
    for uart in $spba/serial@2020000 $aips/serial@21ec000 $aips/serial@21f0000; do
        put "$uart" status okay
    done
    # QEMU has no DMA controller for these,
    for node in $spba/serial@2020000 $aips/serial@21ec000 $aips/serial@21f0000 \
        $aips/serial@21e8000 $spba/spi@2008000; do
        drop "$node" dmas
        drop "$node" dma-names
    done
    # nor the fuses that hold the address of the network card, which would be waited for;
    drop $aips/ethernet@2188000 nvmem-cells
    drop $aips/ethernet@2188000 nvmem-cell-names
    fdtput -t bx "$dtb" $aips/ethernet@2188000 local-mac-address 52 54 00 12 34 56
    # nor these at all.
    for node in /soc/pcie@1ffc000 /soc/dma-controller@110000 /soc/sata@2200000 /soc/gpu@130000 \
        /soc/gpu@134000 /soc/gpu@2204000 /soc/hdmi@120000 /soc/ipu@2400000 /soc/ipu@2800000 \
        /soc/nand-controller@112000 $aips/i2c@21a0000/sgtl5000@a $aips/efuse@21bc000 \
        $aips/crypto@2100000; do
        # Made where another kernel's tree has it no longer, which does no harm.
        fdtput -p -t s "$dtb" "$node" status disabled
    done
    mv "$dtb" "$2"
}

run() {
    out=$1 run=$2 port=$3 http=$4
    shift 4
    # Under its own loader: it need not fit this machine's libraries.
    usr=$out/host/usr
    loader=$(echo "$usr"/lib/*/ld-linux*.so.*)
    libraries=$(dirname "$loader")
    export QEMU_MODULE_DIR="$libraries/qemu"
    exec "$loader" --library-path "$libraries" "$usr/bin/qemu-system-arm" \
        -L "$usr/share/qemu" -machine sabrelite -smp 1 -m 1G -display none \
        -kernel "$out/vmlinuz" -initrd "$out/initrd" -dtb "$out/dtb" \
        -append "console=ttymxc1,115200 rdinit=/init cma=16M cryptomgr.notests loglevel=5 panic=5" \
        -chardev file,id=console,path="$run/console.log" \
        -chardev socket,id=uart,path="$run/uart.sock",server=on,wait=off \
        -serial null -serial chardev:console -serial chardev:uart -serial null \
        -chardev socket,id=hands,path="$run/hands.sock",server=on,wait=off \
        -nic "user,restrict=on,hostfwd=tcp:127.0.0.1:$port-:7000,hostfwd=tcp:127.0.0.1:$http-:8420,guestfwd=tcp:10.0.2.100:7001-chardev:hands" \
        -qmp unix:"$run/qmp.sock",server=on,wait=off \
        -qtest unix:"$run/qtest.sock",server=on,wait=off -qtest-log none \
        -device tmp105,id=tmp105,bus=i2c-bus.0,address=0x48 \
        -device tmp105,id=owned,bus=i2c-bus.0,address=0x49 \
        -device at24c-eeprom,id=spare,bus=i2c-bus.0,address=0x51,rom-size=4096 \
        -device emc1413,id=emc1413,bus=i2c-bus.0,address=0x4c \
        -device tmp421,id=tmp421,bus=i2c-bus.1,address=0x4d \
        -device pca9552,id=pca9552,bus=i2c-bus.1,address=0x60 \
        -device ds1338,id=ds1338,bus=i2c-bus.2,address=0x68 \
        -device at24c-eeprom,id=at24c32,bus=i2c-bus.2,address=0x50,rom-size=4096 "$@"
}

verb=$1
shift
case $verb in
dtb) patched_dtb "$@" ;;
run) run "$@" ;;
esac
