"""The board as people and programs see it: verbs, HTTP, the socket."""

import asyncio
import json
import os
import subprocess
import sys

import aiohttp
import pytest

from edged.bus.settings import SensorConfig
from edged.daemon import NEEDS
from edged.errors import ConfigError
from edged.identity import Caller
from edged.testing import running

OWNER = Caller("local", "owner", "", "http")


@pytest.fixture
async def board(tmp_path):
    tmp_path.chmod(0o755)
    async with running(data=str(tmp_path), authenticate=lambda _: OWNER) as it:
        yield it


async def verb(board, *words, code=0):
    """What a verb prints to standard output."""
    return (await _printed(board, *words, code=code))[0]


async def _printed(board, *words, code=0):
    """To standard output, and to standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "edged", *words, "--socket", board.socket,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == code, (out, err)
    return out.decode(), err.decode()


async def get(board, path, status=200, **query):
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{board.url}{path}", params=query) as response,
    ):
        assert response.status == status, await response.text()
        return await response.json()


async def test_sensors_are_measured_for_who_asks_and_shown_with_unit_and_age(board):
    """Contract, section 2: `edged sensors`."""
    shown = await verb(board, "sensors")
    assert shown.splitlines()[0].split() == ["SENSOR", "CHANNEL", "VALUE", "AGE", "STATE"]
    assert "greenhouse  temperature" in shown
    assert "°C" in shown
    assert max(map(len, shown.splitlines())) <= 80
    found = json.loads(await verb(board, "sensors", "--json", "--fresh"))
    rows = {row["name"]: row for row in found["sensors"]}
    assert len(rows) == 10
    assert {row["state"] for row in rows.values()} <= {"ready", "warming"}
    assert rows["greenhouse"]["state"] == "ready"
    assert [r["unit"] for r in rows["greenhouse"]["readings"]] == ["Cel", "Pa", "%RH"]


async def test_a_scan_prints_lines_that_can_be_pasted(board, tmp_path):
    """Contract, section 2: `edged scan`."""
    shown, noted = await _printed(board, "scan")
    assert "0x76  BME280" in shown
    assert noted == (
        "edged: that is the simulated board: end `edged serve --sim` to see what is wired\n"
    )
    pasted = shown[shown.index("board:") :]
    config = tmp_path / "pasted.yaml"
    config.write_text(pasted)
    from edged import settings

    loaded = settings.load(str(config), explicit=True)
    assert loaded.config.board.sensors["bme280"] == SensorConfig(
        driver="bme280", bus="i2c-1", address=0x76
    )
    found = json.loads(await verb(board, "scan", "--bus", "1", "--json"))
    assert found["i2c"][0]["found"][-1]["drivers"] == ["bme280"]
    await verb(board, "scan", "--bus", "7", code=1)


async def test_without_a_daemon_the_scan_looks_by_itself(tmp_path):
    """Nobody needs a daemon to see what is wired."""
    env = {**os.environ, "EDGED_SOCKET": str(tmp_path / "none")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "edged", "scan", "--json",
        stdout=subprocess.PIPE, env=env,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert set(json.loads(out)) == {"i2c", "spi", "serial", "w1", "problems", "simulated"}


async def test_readings_and_history_over_http(board):
    """Contract, section 6: `GET /api/sensors`, `/api/sensors/{name}/history`."""
    await verb(board, "call", "sensor", "sensor=greenhouse")
    rows = {row["name"]: row for row in (await get(board, "/api/sensors"))["sensors"]}
    assert rows["greenhouse"]["readings"][0]["quality"] == "ok"
    found = await get(board, "/api/sensors/greenhouse/history", since="-1h", step="10m")
    temperature, pressure, _ = found["series"]
    assert (temperature["channel"], temperature["unit"]) == ("temperature", "Cel")
    assert temperature["step_s"] == 600
    assert 5 <= temperature["rows"][0]["mean"] <= 40
    only = await get(
        board, "/api/sensors/greenhouse/history", channel="pressure", since="2020-01-01T00:00:00Z"
    )
    assert [s["channel"] for s in only["series"]] == [pressure["channel"]]
    assert (await get(board, "/api/sensors/cellar/history", 404))["code"] == "not_found"
    wrong = await get(board, "/api/sensors/greenhouse/history", 400, since="yesterday")
    assert "neither a duration (1h, 7d) nor a time" in wrong["detail"]
    await get(board, "/api/sensors/greenhouse/history", 400, channel="taste")


async def test_tools_of_buses_that_are_not_there_are_blocked_and_appear(tmp_path):
    """Issue 3, part 2: `requires_device`, and on hot-plug."""
    tmp_path.chmod(0o755)
    async with running(data=str(tmp_path), sim=False, http=False) as it:
        buses = it.daemon.services.board.buses
        present = set(buses.present())
        rows = {row.name: row for row in it.daemon.registry.states("local")}
        for tool, kind in NEEDS.items():
            blocked = rows[tool].reason_code == "requires_device"
            assert blocked is (kind not in present)
        buses.present = lambda: frozenset(NEEDS.values())
        it.daemon._plugged()
        rows = {row.name: row for row in it.daemon.registry.states("local")}
        assert {rows[tool].status for tool in NEEDS} == {"enabled"}
        buses.present = frozenset
        it.daemon._plugged()
        rows = {row.name: row for row in it.daemon.registry.states("local")}
        assert {rows[tool].reason_code for tool in NEEDS} == {"requires_device"}
        assert "config.txt" in rows["i2c"].problem


async def test_a_fault_of_the_board_stops_the_start_with_its_line(tmp_path):
    """Architecture: a driver's `Config` is checked with the file and line of the loader."""
    config = "board:\n  sensors:\n    a: {driver: bme280}\n    b: {driver: bme820}\n"
    with pytest.raises(ConfigError, match=r"edged.yaml:4: board.sensors.b.driver: 'bme820'"):
        async with running(data=str(tmp_path), config=config, sim=False):
            pass


async def test_calibrations_outlive_the_daemon(tmp_path):
    """Contract, section 3: what changes at run time lies under the data directory."""
    tmp_path.chmod(0o755)
    words = ["call", "sensor", "sensor=greenhouse", "channel=humidity"]
    async with running(data=str(tmp_path), http=False) as it:
        await verb(it, *words, "action=calibrate", "value=50")
    async with running(data=str(tmp_path), http=False) as it:
        assert "humidity 50.0 %" in await verb(it, *words)


async def test_what_was_simulated_is_never_taken_for_measured(tmp_path):
    """README: the same directory serves `make run` first and the real board after it."""
    tmp_path.chmod(0o755)
    async with running(data=str(tmp_path), http=False) as it:
        await verb(
            it, "call", "sensor", "sensor=host", "channel=disk_free", "action=calibrate", "value=1"
        )
        await verb(it, "call", "sensor", "sensor=greenhouse")
    config = "board: {sensors: {greenhouse: {driver: host}, host: {driver: host}}}\n"
    async with running(data=str(tmp_path), config=config, sim=False, http=False) as it:
        board = it.daemon.services.board
        assert board.calibrations("host") == {}
        series = await it.daemon.services.history.read("greenhouse", "temperature", 0.0)
        assert series == ()


async def test_a_board_that_the_simulation_stands_in_for_is_told(tmp_path):
    config = "board: {gpio: {pump: {line: GPIO17, direction: output}}}\n"
    async with running(data=str(tmp_path), config=config, http=False) as it:
        assert (
            "warning: board: of the configuration is not used with --sim" in it.daemon.greeting()
        )


async def test_settings_of_tools_that_change_nothing_are_told(tmp_path):
    """A typing error is no tool that comes later: nothing else would say it."""
    for name in ("tools/soil", "ada@example.org/tools/serials"):
        (tmp_path / name).mkdir(parents=True)
    config = (
        "tools: {mesage: {enabled: false}, message: {env: {A: b}}, soil: {env: {A: b}},"
        " serials: {hidden: true}, my_own: {env: {A: b}}, webb: {enabled: false}}\n"
    )
    async with running(data=str(tmp_path), config=config, http=False) as it:
        told = [line for line in it.daemon.greeting() if line.startswith("warning: tools.")]
    assert told == [
        "warning: tools.mesage: no tool has this name; did you mean 'message'?",
        "warning: tools.message.env is not used: message is built in, and has no variables",
        "warning: tools.webb: no tool has this name; did you mean 'web'?",
    ]


async def test_where_sensor_is_off_readings_are_the_owners_alone(tmp_path):
    """By every door, not by the tool alone."""
    tmp_path.chmod(0o755)
    agent = Caller("local", "agent", "", "http", "token ada")

    def who(headers):
        return agent if "X-Agent" in headers else OWNER

    async with running(data=str(tmp_path), authenticate=who) as board:
        control = board.daemon.control
        await verb(board, "sensors", "--fresh")

        async def seen(**headers):
            async with (
                aiohttp.ClientSession(board.url, headers=headers) as http,
                http.get("/api/sensors") as listed,
                http.get("/api/sensors/greenhouse/history") as history,
            ):
                rows = {row["name"]: row for row in (await listed.json())["sensors"]}
                events = control.services.events.since(0)
                heard = {e.kind for e in events if control.may_see(who(headers), e)}
                return len(rows["greenhouse"]["readings"]), history.status, heard

        count, status, heard = await seen(**{"X-Agent": "1"})
        assert count > 1
        assert status == 200
        assert "sensor.reading" in heard
        await verb(board, "tools", "--disable", "sensor")
        assert await seen() == (count, 200, heard | {"tools.changed"})
        count, status, heard = await seen(**{"X-Agent": "1"})
        assert (count, status) == (0, 403)
        assert "sensor.reading" not in heard
        assert "tools.changed" in heard
