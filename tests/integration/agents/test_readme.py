"""README, "Agents" and "Subagents": its examples, with a scripted model where it has a real one."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from edged import plugins, settings
from edged.agents.store import Agents
from edged.sections import Subagent
from edged.testing import FakeClock, running
from edged.transports._routes import ROUTES
from tests.integration.agents.conftest import BOUND_S, OWNER
from tests.integration.agents.modelserver import Hang, Say

README = (Path(__file__).parents[3] / "README.md").read_text()
AGENTS = README.split("\n## Agents\n")[1].split("\n## Subagents\n")[0]
SUBAGENTS = README.split("\n## Subagents\n")[1].split("\n## What holds a tool\n")[0]
CONFIG = re.search(r"```yaml\n(tools:\n  subagent:.*?)```", SUBAGENTS, re.DOTALL)[1]
COMMANDS = re.findall(r"^    edged (.*)$", SUBAGENTS, re.MULTILINE)


@pytest.fixture
def section(folder):
    """The configuration, whose secret lies beside it."""
    secrets = Path(folder, "secrets.yaml")
    secrets.write_text("anthropic: sk-of-the-readme\n")
    secrets.chmod(0o600)
    return settings.parse(CONFIG, f"{folder}/edged.yaml").section(Subagent)


def test_the_agent_of_the_readme_is_one(tmp_path):
    content = re.search(r"```markdown\n(.*?)```", AGENTS, re.DOTALL)[1]
    made = Agents(str(tmp_path), FakeClock()).take("local", content)
    assert (made.slug, made.tool_permissions) == ("night-watch", ("sensor", "gpio", "tool_*"))
    assert (made.model, made.status) == ("small", "enabled")
    assert made.system_prompt.startswith("You look after a greenhouse")


def test_endpoints_of_the_readme_are_those_that_there_are():
    told = set(re.findall(r"/api/(?:sub)?agents?[/{}a-z]*", AGENTS + SUBAGENTS))
    there = {route.path for route in ROUTES if re.match(r"/api/(sub)?agents?\b", route.path)}
    assert {path.rstrip("/") for path in told} == there


def test_settings_of_the_readme_are_all_with_their_defaults(section):
    shown = set(re.findall(r"^    (\w+):", CONFIG, re.MULTILINE))
    assert shown == set(Subagent.__struct_fields__) - {"enabled"}
    for name in shown - {"providers", "default"}:
        assert getattr(section, name) == getattr(Subagent(), name), name
    assert section.providers["cloud"].api_key == "sk-of-the-readme"


def test_kinds_of_model_servers_are_those_of_the_readme():
    table = SUBAGENTS.split("| kind |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)
    assert {row.replace("-", "_") for row in rows} == set(plugins.names("edged.agents.providers"))


async def test_commands_of_the_readme_do_what_it_says(folder, model, section):
    """Of its two providers both are the scripted model."""
    assert section.default == "local"
    text = CONFIG.replace("http://127.0.0.1:8080", model.url)
    text = text.replace("{kind: anthropic,", f'{{kind: anthropic, base_url: "{model.url}/v1",')
    async with running(data=folder, config=text, authenticate=lambda _: OWNER) as it:

        async def edged(line):
            words = shlex.split(line)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "edged", *words, "--socket", it.socket,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "COLUMNS": "80"},
            )  # fmt: skip
            out, err = await asyncio.wait_for(process.communicate(), BOUND_S)
            assert process.returncode == 0, err
            return out.decode()

        run, named, background, job, tasks, stop = COMMANDS
        model.script = [Say("All is well."), Say("The beds are moist.")]
        assert await edged(run) == "All is well.\n"
        assert await edged(named) == "The beds are moist.\n"
        assert [asked["model"] for asked in model.asked] == ["qwen3-1.7b", "claude-haiku-4-5"]
        assert model.headers[1]["x-api-key"] == "sk-of-the-readme"
        model.endless = Hang()
        task_id = re.search(r"task_id=(\w+)", await edged(background))[1]
        listed = await edged(tasks)
        assert re.search(rf"^{task_id}  (running|waiting) ", listed, re.MULTILINE)
        assert "Cron job added" in await edged(job)
        assert re.search("status +cancelled", await edged(stop.replace("1f0c9a2e", task_id)))
        assert "sk-of-the-readme" not in "".join(
            path.read_text() for path in Path(folder, "subagents").iterdir()
        )


def test_statuses_of_the_readme_are_those_that_there_are():
    from typing import get_args

    from edged.agents.transcript import State

    table = SUBAGENTS.split("| a task is | when |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`(\w+)`", row)} == set(get_args(State))
