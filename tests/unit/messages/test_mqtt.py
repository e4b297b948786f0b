"""MQTT, against Eclipse Mosquitto (issue 4, part 6)."""

import base64
import json
import os
import shutil
import socket
import subprocess

import aiomqtt
import pytest

from edged.errors import ConfigError, DeniedError, InvalidArgumentsError
from edged.messages import DeliveryError

PASSWORD = "right words"
PATH = f"{os.environ['PATH']}:/usr/sbin"


class Mosquitto:
    """A broker in a process of its own."""

    def __init__(self, folder, certificate):
        self.folder = folder
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            self.port, self.tls_port = one.getsockname()[1], two.getsockname()[1]
        tool = shutil.which("mosquitto_passwd", path=PATH)
        passwords = folder / "passwords"
        subprocess.run([tool, "-b", "-c", passwords, "board", PASSWORD], check=True)
        certfile, keyfile = certificate
        (folder / "conf").write_text(
            f"user root\nper_listener_settings false\npassword_file {passwords}\n"
            f"allow_anonymous false\nlistener {self.port} 127.0.0.1\n"
            f"listener {self.tls_port} 127.0.0.1\ncertfile {certfile}\nkeyfile {keyfile}\n"
        )
        program = shutil.which("mosquitto", path=PATH)
        self.process = subprocess.Popen(
            [program, "-c", folder / "conf"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def wait(self):
        """Until it listens: it says so on its standard error."""
        for line in self.process.stderr:
            if b"running" in line:
                return
        raise AssertionError("mosquitto did not start")

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def broker(tmp_path_factory, certificate):
    made = Mosquitto(tmp_path_factory.mktemp("mosquitto"), certificate)
    try:
        made.wait()
        yield made
    finally:
        made.stop()


@pytest.fixture
def mqtt(broker, channel):
    def make(**settings):
        base = {"kind": "mqtt", "host": "127.0.0.1", "port": broker.port, "topic": "home/shed",
                "username": "board", "password": PASSWORD}  # fmt: skip
        return channel(**{**base, **settings})

    return make


@pytest.fixture
async def listener(broker):
    """Another client, which gets what is published."""
    async with aiomqtt.Client(
        "127.0.0.1", broker.port, username="board", password=PASSWORD
    ) as one:
        await one.subscribe("home/#", qos=1)
        yield one


async def heard(listener, count=1):
    found = []
    async for message in listener.messages:
        found.append((str(message.topic), message.payload, message.qos))
        if len(found) == count:
            return found
    return found


async def test_a_message_is_published_as_json(mqtt, listener, note):
    await mqtt().send(note(chat_id="home/shed", title="Frost"), 0, "")
    [(topic, payload, qos)] = await heard(listener)
    assert (topic, qos) == ("home/shed", 1)
    found = json.loads(payload)
    assert (found["id"], found["title"], found["text"]) == ("0123456789abcdef", "Frost", "hello")


async def test_bare_text_and_bare_files(mqtt, listener, note, picture):
    """For displays and scripts that know no JSON."""
    path, file = picture(b"\x89PNG\0")
    one = mqtt(payload="text")
    message = note(chat_id="home/shed", file=file)
    assert one.steps(message) == 2
    for step in range(2):
        await one.send(message, step, path)
    assert [payload for _, payload, _ in await heard(listener, 2)] == [b"hello", b"\x89PNG\0"]
    await mqtt().send(message, 0, path)
    [(_, payload, _)] = await heard(listener)
    assert base64.b64decode(json.loads(payload)["file"]["data"]) == b"\x89PNG\0"


# paho-mqtt leaves the socket of a failed handshake to the collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_tls_with_one_s_own_certificate(mqtt, broker, listener, note, certificate):
    settings = {"host": "localhost", "port": broker.tls_port, "tls": True}
    await mqtt(**settings, ca_file=certificate[0]).send(note(chat_id="home/shed"), 0, "")
    assert len(await heard(listener)) == 1
    with pytest.raises(DeliveryError, match="certificate"):
        await mqtt(**settings).send(note(chat_id="home/shed"), 0, "")


async def test_a_retained_message_is_there_for_those_who_come_later(mqtt, broker, note):
    await mqtt(topic="late/x", retain=True).send(note(chat_id="late/x"), 0, "")
    login = {"username": "board", "password": PASSWORD}
    async with aiomqtt.Client("127.0.0.1", broker.port, **login) as later:
        await later.subscribe("late/#")
        assert len(await heard(later)) == 1


async def test_a_wrong_password_may_be_mended(mqtt, note):
    one = mqtt(password="wrong words")
    with pytest.raises(DeliveryError, match="does not take the name and password") as caught:
        await one.send(note(chat_id="home/shed"), 0, "")
    assert not caught.value.is_final
    assert one.secrets == ("wrong words",)


async def test_no_broker_is_no_reason_to_give_up(mqtt, note):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DeliveryError, match="refused") as caught:
        await mqtt(port=port).send(note(chat_id="home/shed"), 0, "")
    assert not caught.value.is_final


def test_agents_name_topics_of_the_configuration_only(mqtt):
    one = mqtt(chats=["home/house"])
    assert one.chat("", free=False) == "home/shed"
    assert one.chat("home/house", free=False) == "home/house"
    with pytest.raises(DeniedError, match="'home/door/unlock' is not one"):
        one.chat("home/door/unlock", free=False)
    for bad in ("home/#", "home/+/x", "a\0b"):
        with pytest.raises(InvalidArgumentsError, match="no topic"):
            one.chat(bad, free=True)
    with pytest.raises(ConfigError, match="topic: is no topic"):
        mqtt(topic="home/#")
