"""How a daemon knows itself from afar."""

from edged.instance import instance


def test_a_daemon_is_the_same_in_each_life_and_another_on_each_board(tmp_path):
    """machine-id(5): it must be told hashed alone."""
    (tmp_path / "etc").mkdir()
    number = tmp_path / "etc/machine-id"
    number.write_text("0123456789abcdef0123456789abcdef\n")
    first = instance("/var/lib/edged", root=str(tmp_path))
    assert len(bytes.fromhex(first)) == 8
    assert first not in number.read_text()
    assert instance("/var/lib/edged", root=str(tmp_path)) == first
    assert instance("/home/ada/data", root=str(tmp_path)) != first
    number.write_text("fedcba9876543210fedcba9876543210\n")
    assert instance("/var/lib/edged", root=str(tmp_path)) != first
