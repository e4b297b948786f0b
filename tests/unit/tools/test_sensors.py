"""`sensor` on the simulated board (issue 2, part 9)."""

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import BoardConfig, HistoryConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.drivers import bme280
from edged.history import History
from edged.tools import sensors


@pytest.fixture(autouse=True)
def tools(core):
    core.add(*sensors.TOOLS)


async def read(core, board=None, **arguments):
    if board is not None:
        services = msgspec.structs.replace(core.dispatcher.services, board=board)
        core.dispatcher.services = services
    return await core.call("sensor", msgspec.json.encode(arguments), core.agent)


def board(core, *names, chips=(0x76,), **truth):
    addresses = dict(zip(names, (0x76, 0x77), strict=False))
    configs = {
        name: SensorConfig(driver="bme280", bus="i2c-1", address=address)
        for name, address in addresses.items()
    }
    bus = SimI2c("i2c-1", {address: bme280.Sim(core.clock, **truth) for address in chips})
    buses = SimBuses(i2c={"i2c-1": bus})
    return Board(BoardConfig(sensors=configs), buses, core.clock, sleep=core.sleep)


async def test_without_inputs_the_sensors_are_listed_with_their_units(core):
    """SenML units on the wire; contract, section 5: `sensors`."""
    for arguments in ({}, {"action": "list"}):
        result = await read(core, **arguments)
        assert (
            "\ngreenhouse: bme280 on i2c-1, unknown\n"
            "  temperature (Cel), pressure (Pa), humidity (%RH)\n"
        ) in result.for_llm
        assert max(map(len, result.for_llm.splitlines())) <= 80
        rows = {row["name"]: row for row in result.structured["sensors"]}
        assert list(rows) == [info.name for info in core.board.sensors]
        row = rows["greenhouse"]
        assert (row["driver"], row["address"]) == ("bme280", 0x76)


@pytest.mark.parametrize("arguments", [{"sensor": "greenhouse"}, {"name": "greenhouse"}])
async def test_a_named_sensor_is_read(core, arguments):
    """Values with units, time and age; `name` is an alias."""
    result = await read(core, **arguments)
    assert not result.is_error
    rows = {row["channel"]: row for row in result.structured["readings"]}
    assert {c: row["unit"] for c, row in rows.items()} == {
        "temperature": "Cel",
        "pressure": "Pa",
        "humidity": "%RH",
    }
    # BST-BME280-DS002, table 1: the operating range.
    assert -40 <= rows["temperature"]["value"] <= 85
    row = rows["temperature"]
    assert (row["sensor"], row["quality"], row["age_s"]) == ("greenhouse", "ok", 0.0)
    assert row["time"].startswith("2023-11-14T22:13:2")
    assert "note" not in row
    assert result.for_llm.startswith("greenhouse: temperature ")
    assert " °C" in result.for_llm


async def test_one_channel_is_read_alone(core):
    """`channel` narrows it."""
    result = await read(core, sensor="greenhouse", channel="humidity")
    assert [row["channel"] for row in result.structured["readings"]] == ["humidity"]


async def test_all_sensors_are_read_at_once(core):
    """`action: read` without a name."""
    two = board(core, "in", "out", chips=(0x76, 0x77))
    async with two:
        result = await read(core, two, action="read")
    assert {row["sensor"] for row in result.structured["readings"]} == {"in", "out"}
    assert "errors" not in result.structured


async def test_a_sensor_that_does_not_answer_hides_no_other(core):
    """Its error stands beside the others' values."""
    two = board(core, "in", "out")
    async with two:
        result = await read(core, two, action="read")
        assert not result.is_error
        assert {row["sensor"] for row in result.structured["readings"]} == {"in"}
        assert result.structured["errors"].keys() == {"out"}
        assert "\nout: " in result.for_llm
        alone = await read(core, two, sensor="out")
        assert alone.is_error
        assert "0x77" in alone.for_llm
        listed = await read(core, two)
        assert "out: bme280 on i2c-1, absent: " in listed.for_llm


async def test_when_no_sensor_answers_it_is_a_failure(core):
    """There is nothing to show."""
    none = board(core, "in", chips=())
    async with none:
        result = await read(core, none, action="read")
    assert result.is_error
    assert result.for_llm.startswith("in: ")


async def test_a_reading_of_a_moment_ago_will_do_where_it_is_said(core):
    """`max_age`, in seconds; its age is told."""
    await read(core, sensor="greenhouse")
    core.clock.advance(5.0)
    row = (await read(core, sensor="greenhouse", max_age=60)).structured["readings"][0]
    assert row["age_s"] == 5.0
    row = (await read(core, sensor="greenhouse", max_age=1)).structured["readings"][0]
    assert row["age_s"] == 0.0


async def test_a_value_that_is_not_sure_says_why(core):
    """`quality` and `note` (BST-BME280-DS002: the chip's limits)."""
    one = board(core, "in", temperature_cel=120.0)
    async with one:
        result = await read(core, one, sensor="in", channel="temperature")
    (row,) = result.structured["readings"]
    assert row["quality"] != "ok"
    assert row["note"]
    assert row["note"] in result.for_llm


async def test_what_is_not_there_is_refused_with_what_there_is(core):
    """Errors say what to do."""
    unknown = await read(core, sensor="cellar")
    there = "air, dust, greenhouse, host, light, rain, soil, supply, tank, water"
    assert (unknown.is_error, unknown.for_llm) == (True, f"no sensor 'cellar': there is {there}")
    channel = await read(core, sensor="greenhouse", channel="wind")
    assert "it has temperature, pressure, humidity" in channel.for_llm
    meant = await read(core, sensor="greenhouse", channel="humidity", value=60)
    assert (meant.is_error, meant.for_llm) == (True, "sensor: value: belongs to action calibrate")
    # Models fill in what they see.
    assert not (await read(core, sensor="greenhouse", value=0, step="", reset=False)).is_error
    lonely = await read(core, channel="humidity")
    assert (lonely.is_error, lonely.for_llm) == (True, "sensor: is required")


async def test_a_board_without_sensors_says_how_to_add_them(core):
    """A newcomer's first call."""
    bare = board(core)
    async with bare:
        for action in ("list", "read"):
            result = await read(core, bare, action=action)
            assert "add them under `board: sensors:`" in result.for_llm
            assert result.structured == {"sensors": []}


@pytest.mark.parametrize(("step", "seconds"), [("60", 60), (60, 60), ("0", 0), ("1m", 60)])
async def test_a_step_may_be_bare_seconds_as_text_too(core, tmp_path, step, seconds):
    """What a shell or a URL gives is text."""
    history = History(str(tmp_path / "samples.db"), HistoryConfig(), core.clock)
    services = msgspec.structs.replace(core.dispatcher.services, history=history)
    core.dispatcher.services = services
    history.add(await core.board.read("greenhouse"))
    for since in ("3600", "1h", "-1h"):
        asked = {"action": "history", "sensor": "greenhouse", "since": since, "step": step}
        result = await read(core, **asked)
        assert not result.is_error, result.for_llm
        assert {one["step_s"] for one in result.structured["series"]} == {seconds}
    for key in ("since", "step"):
        wrong = await read(core, action="history", sensor="greenhouse", **{key: "soon"})
        assert wrong.for_llm.startswith(f"sensor: {key}: 'soon' is n")
    await history.close()
