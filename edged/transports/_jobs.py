"""Jobs over HTTP."""

from __future__ import annotations

import msgspec
from aiohttp.web_response import StreamResponse

from edged.cron.spec import Spec
from edged.cron.view import Answer as Done
from edged.cron.view import Listing, View
from edged.transports._api import Request
from edged.transports._openapi import TEXT, Answer, Parameter, Route

PAGE_MAX = 1_000
OFFSET_MAX = 10**9


class JobState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The wanted state of a job."""

    enabled: bool


async def list_jobs(request: Request) -> StreamResponse:
    """List jobs, those that are due next first: all for an owner, its user's for an agent."""
    limit = request.number("limit", 100, PAGE_MAX)
    offset = request.number("offset", 0, OFFSET_MAX)
    cron = request.api.control.services.cron()
    return request.reply(await cron.page(request.caller, limit, offset))


async def add_job(request: Request) -> StreamResponse:
    """Add a job; it is on disk when this is answered."""
    spec = await request.body(Spec)
    cron = request.api.control.services.cron()
    done = await cron.add(request.caller, spec)
    return request.reply(done, 201, {"Location": f"/api/jobs/{done.job.id}"})


async def get_job(request: Request) -> StreamResponse:
    """Tell one job with its newest runs."""
    cron = request.api.control.services.cron()
    return request.reply(await cron.get(request.caller, request.params["id"]))


async def update_job(request: Request) -> StreamResponse:
    """Change a job: what is absent stays."""
    spec = await request.body(Spec)
    cron = request.api.control.services.cron()
    job_id = request.params["id"]
    return request.reply(await cron.update(request.caller, job_id, spec))


async def remove_job(request: Request) -> StreamResponse:
    """Remove a job and its runs."""
    cron = request.api.control.services.cron()
    return request.reply(await cron.remove(request.caller, request.params["id"]))


async def switch_job(request: Request) -> StreamResponse:
    """Switch a job on or off."""
    body = await request.body(JobState)
    cron = request.api.control.services.cron()
    return request.reply(await cron.enable(request.caller, request.params["id"], body.enabled))


async def run_job(request: Request) -> StreamResponse:
    """Run a job now; waits some seconds for its end, and it goes on when that is not enough."""
    cron = request.api.control.services.cron()
    return request.reply(await cron.run(request.caller, request.params["id"]))


_JOB = (Parameter("id", "the job's id, or its name where only one has it", TEXT),)

ROUTES = (
    Route(
        "GET",
        "/api/jobs",
        list_jobs,
        (Answer(200, "the jobs", Listing),),
        query=(
            Parameter(
                "limit",
                "how many",
                {"type": "integer", "minimum": 0, "maximum": PAGE_MAX, "default": 100},
            ),
            Parameter(
                "offset",
                "how many to leave out",
                {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX, "default": 0},
            ),
        ),
        problems=(507,),
    ),
    Route(
        "POST",
        "/api/jobs",
        add_job,
        (Answer(201, "it is added", Done, headers=(("Location", "where it is"),)),),
        Spec,
        problems=(409, 507),
    ),
    Route(
        "GET",
        "/api/jobs/{id}",
        get_job,
        (Answer(200, "the job", View),),
        params=_JOB,
        problems=(507,),
    ),
    Route(
        "PATCH",
        "/api/jobs/{id}",
        update_job,
        (Answer(200, "it is changed", Done),),
        Spec,
        params=_JOB,
        problems=(409, 507),
    ),
    Route(
        "DELETE",
        "/api/jobs/{id}",
        remove_job,
        (Answer(200, "it is removed", Done),),
        params=_JOB,
        problems=(507,),
    ),
    Route(
        "PUT",
        "/api/jobs/{id}/state",
        switch_job,
        (Answer(200, "done", Done),),
        JobState,
        params=_JOB,
        problems=(507,),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/run",
        run_job,
        (Answer(200, "it was begun", Done),),
        params=_JOB,
        problems=(507,),
    ),
)
