"""I2C against emulated ioctls."""

# gi's importer is from before Python 3.12.
OPTIONS = ("-W", "ignore:DynamicImporter:ImportWarning")


def test_the_kernels_interface_is_used_as_it_is_documented(run_under_umockdev):
    run_under_umockdev("tests/integration/bus/umockdev_i2c.py", "smbus2", *OPTIONS)


def test_the_conformance_suite(run_under_umockdev):
    run_under_umockdev("tests/conformance", "smbus2", *OPTIONS, rig="umockdev_i2c_rig")
