"""`edged safe`: every output that can be is made safe, whatever else is wrong.

On this machine there are no such lines: what is said of each shows that it was tried.
"""

import msgspec
import pytest

from edged.cli import run, safe
from edged.errors import ConfigError

PUMP = "  gpio:\n    pump: {line: GPIO999, direction: output}\n"


@pytest.fixture
def place(tmp_path):
    def write(text):
        path = tmp_path / "edged.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("board:\n  sensors:\n    a: {driver: bme820}\n" + PUMP, 3),
        ("board:\n  sensors:\n    a: {driver: bme280, evry: 5s}\n" + PUMP, 3),
        ("http: {listn: []}\nboard:\n" + PUMP, 1),
    ],
)
def test_a_fault_elsewhere_is_told_with_its_line_and_leaves_no_output_on(
    place, capsys, text, line
):
    """Run by ExecStopPost of the unit, where nobody can mend the file first."""
    path = place(text)
    board, wrong, _ = safe.outputs(path, explicit=True)
    assert list(board.gpio) == ["pump"]
    assert wrong == []
    run(["safe", "--config", path])
    out, err = capsys.readouterr()
    assert err.startswith(f"edged: {path}:{line}: ")
    assert err.count("\n") == 1
    assert out.startswith("pump  ")
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "    lamp: {line: GPIO998, direction: sideways}\n",
        "    lamp: {line: GPIO999, direction: output}\n",
        "    lamp: 5\n",
        "    lamp: {line: GPIO998, direction: output}\n  actuators: {lamp: {driver: servo}}\n",
        "  actuators: {lamp: {driver: servoo}}\n",
        "  actuators: {lamp: {driver: servo, options: {chanel: pwmchip0/0}}}\n",
    ],
)
def test_an_output_whose_entry_is_wrong_hides_no_other(place, capsys, wrong):
    path = place("board:\n" + PUMP + wrong)
    assert run(["safe", "--config", path, "--json"]) == 1
    out, err = capsys.readouterr()
    states = msgspec.json.decode(out)["outputs"]
    assert states["lamp"] == safe.WRONG
    assert "GPIO999" in states["pump"]
    assert err.startswith(f"edged: {path}:")


def test_inputs_and_sensors_are_left_alone(place, capsys):
    path = place(
        "board:\n  sensors: {a: {driver: bme280}, clock: {driver: ds3231}}\n"
        "  gpio: {door: {line: GPIO998, direction: input}}\n"
    )
    assert run(["safe", "--config", path]) == 0
    assert capsys.readouterr() == ("no outputs are configured\n", "")


@pytest.mark.parametrize("text", ["board: [", "\x00"])
def test_what_is_no_yaml_is_refused(place, text):
    with pytest.raises(ConfigError, match="edged.yaml:1"):
        safe.outputs(place(text), explicit=True)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        safe.outputs(str(tmp_path / "none.yaml"), explicit=True)
