"""SPI against emulated ioctls."""


def test_the_kernels_interface_is_used_as_it_is_documented(run_under_umockdev):
    """`Documentation/spi/spidev.rst` of the kernel; the package spidev in between."""
    run_under_umockdev("tests/integration/bus/umockdev_spi.py", "spidev")


def test_the_conformance_suite(run_under_umockdev):
    run_under_umockdev("tests/conformance", "spidev", rig="umockdev_spi_rig")
