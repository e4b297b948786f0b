"""`find_skills`, `install_skill`, `skill`: instructions that agents fetch and follow.

`skill` alone lists what is there, each by name and description, and gives a body when
one is asked for (contract, section 13: bodies on demand); a description of it that held
the list would change with every skill, and with it every client's cached prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.errors import Fault, InvalidArgumentsError
from edged.results import Result
from edged.tool import READS, Context, Hints, tool

if TYPE_CHECKING:
    from edged.skills.service import Outcome, Row

LOOKS = Hints(read_only=True, destructive=False, idempotent=True, open_world=True)
INSTALLS = Hints(read_only=False, destructive=True, idempotent=True, open_world=True)
NEEDS = ("skills",)

Name = Annotated[str, Meta(max_length=500)]
Source = Annotated[
    str, Meta(description="A registry of the configuration, by name or address.", max_length=500)
]


class Find(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `find_skills`."""

    query: Annotated[
        str, Meta(description="What it should help with.", min_length=1, max_length=500)
    ]
    limit: Annotated[int, Meta(description="At most so many.", ge=1, le=50)] = 10
    source: Source = ""


@tool(
    "find_skills",
    label="Find skills",
    category="skills",
    hints=LOOKS,
    aliases={"registry": "source", "max_results": "limit", "count": "limit"},
    timeout_s=180.0,
    requires=NEEDS,
)
async def find_skills(params: Find, ctx: Context) -> Result:
    """Search the skill registries; install one with install_skill."""
    if not params.query.strip():
        raise InvalidArgumentsError([Fault("query", "is empty: say what it should help with")])
    found = await ctx.services.skills().find(params.query, params.limit, params.source)
    lines = [f"Skills for: {params.query}" if found.hits else f"No skills for: {params.query}"]
    for number, hit in enumerate(found.hits, 1):
        version = f" {hit.version}" if hit.version else ""
        lines += ["", f"{number}. {hit.name}{version} ({hit.registry})"]
        lines += [f"   {text}" for text in (hit.description, hit.note) if text]
    if found.notes:
        lines += ["", *(f"({note})" for note in found.notes)]
    structured = {
        "query": params.query,
        "results": [msgspec.to_builtins(hit) for hit in found.hits],
        "notes": found.notes,
    }
    return results.text("\n".join(lines), structured=structured)


class Install(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `install_skill`."""

    name: Annotated[
        str,
        Meta(
            description="As find_skills shows it: SLUG, OWNER/SLUG, OWNER/REPO/PATH, or its URL. "
            "To update or remove: of the installed skill; update without a name: all.",
            max_length=500,
        ),
    ] = ""
    source: Source = ""
    version: Annotated[
        str, Meta(description="Default: the newest. One that is named is kept.", max_length=200)
    ] = ""
    action: Literal["install", "update", "remove"] = "install"
    force: Annotated[
        bool, Meta(description="Also replace what was changed here; the former is kept aside.")
    ] = False
    scope: Annotated[
        Literal["user", "everyone"], Meta(description="For everyone: owners only.")
    ] = "user"


@tool(
    "install_skill",
    label="Install a skill",
    category="skills",
    hints=INSTALLS,
    aliases={"slug": "name", "registry": "source"},
    timeout_s=600.0,
    requires=NEEDS,
)
async def install_skill(params: Install, ctx: Context) -> Result:
    """Install a skill from a registry, update or remove one; read it with `skill`."""
    skills, everyone = ctx.services.skills(), params.scope == "everyone"
    name = params.name.strip()
    if not name and params.action != "update":
        raise InvalidArgumentsError([Fault("name", "is required")])
    if params.source and params.action != "install":
        raise InvalidArgumentsError([Fault("source", "goes with action=install")])
    if params.action == "remove":
        kept = await skills.remove(ctx.caller, name, force=params.force, everyone=everyone)
        return results.text(
            f"Removed {name}. Until another of that name is, it is kept in {kept}.",
            structured={"skills": [{"name": name, "outcome": "removed", "kept": kept}]},
        )
    if params.action == "update":
        outcomes = await skills.update(
            ctx.caller, name, version=params.version, force=params.force, everyone=everyone
        )
    else:
        outcomes = [
            await skills.install(
                ctx.caller,
                name,
                source=params.source,
                version=params.version,
                force=params.force,
                everyone=everyone,
            )
        ]
    lines = [line for one in outcomes for line in _told(one)]
    structured = {"skills": [msgspec.to_builtins(one) for one in outcomes]}
    return results.text("\n".join(lines) or "No skill is from a registry.", structured=structured)


def _told(one: Outcome) -> list[str]:
    version = f"{one.name} {one.version}".rstrip()
    note = f": {one.note}" if one.note else ""
    if one.outcome in ("installed", "updated"):
        before = f" (before: {one.before})" if one.before not in ("", one.version) else ""
        files = f"{one.files} file" + ("" if one.files == 1 else "s")
        head = f"{one.outcome.capitalize()} {version}{before} from {one.source}"
        head = f"{head}: {files} in {one.path}"
        return [
            f"{head}. Read it with skill name={one.name}.",
            *map("Warning: {}".format, one.warnings),
        ]
    words = {
        "current": "is up to date",
        "pinned": "is pinned",
        "skipped": "was not updated",
    }
    return [f"{version} {words[one.outcome]}{note}"]


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `skill`."""

    name: Annotated[
        str, Meta(description="Of the skill; without: lists them.", max_length=300)
    ] = ""
    file: Annotated[
        str, Meta(description="A text that comes with it, in place of its body.", max_length=1_024)
    ] = ""


@tool(
    "skill",
    label="Read a skill",
    category="skills",
    hints=READS,
    aliases={"slug": "name", "path": "file"},
    requires=NEEDS,
)
async def skill(params: Read, ctx: Context) -> Result:
    """List the skills that are installed, or read one's instructions, before a task they fit."""
    skills = ctx.services.skills()
    if params.file and not params.name:
        raise InvalidArgumentsError([Fault("name", "is required with file")])
    if not params.name:
        return _listed(await skills.rows(ctx.caller))
    if params.file:
        text = await skills.read(ctx.caller, params.name, params.file)
        facts = {"name": params.name, "file": params.file}
        return results.text(text or "(the file is empty)", structured=facts)
    shown = await skills.show(ctx.caller, params.name)
    row = shown.row
    lines = [f"Skill {row.name}, in {row.path}: {row.description}"]
    for label, text in (
        ("Needs", shown.compatibility),
        ("Its tools", ", ".join(shown.allowed_tools)),
        ("License", shown.license),
    ):
        lines += [f"{label}: {text}"] if text else []
    if shown.files:
        more = f" and {shown.more_files} more" if shown.more_files else ""
        lines += [f"Files (read with file=): {', '.join(shown.files)}{more}"]
    lines += ["", shown.body or "(no instructions)"]
    structured = {
        k: v for k, v in msgspec.to_builtins(shown).items() if k not in ("body", "row")
    } | msgspec.to_builtins(row)
    return results.text("\n".join(lines), structured=structured)


def _listed(rows: list[Row]) -> Result:
    usable = [row for row in rows if not row.problem]
    lines = [f"{row.name}: {row.description}" for row in usable]
    lines = lines or ["No skills are installed: find_skills finds some."]
    for row in rows:
        if row.problem:
            lines.append(f"(not usable: {row.name}: {row.problem})")
    structured: dict[str, Any] = {"skills": [msgspec.to_builtins(row) for row in rows]}
    return results.text("\n".join(lines), structured=structured)


TOOLS = (find_skills, install_skill, skill)
