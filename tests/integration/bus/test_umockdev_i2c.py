"""I2C against emulated ioctls."""


def test_the_kernels_interface_is_used_as_it_is_documented(run_under_umockdev):
    # gi's importer is from before Python 3.12.
    options = ("-W", "ignore:DynamicImporter:ImportWarning")
    run_under_umockdev("umockdev_i2c.py", "smbus2", *options)
