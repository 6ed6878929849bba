"""The pages under ``/ui``: what the queue holds and what was done, for people; complete without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

from . import actions, pages, signing, static
from .door import Door, lead_to

if TYPE_CHECKING:
    from ..desk import Desk


def routes(desk: Desk) -> list[BaseRoute]:
    """Give the routes of the pages of one desk."""
    door = Door(desk)
    shown = pages.Pages(door)
    moves = actions.Actions(door)
    return [
        Route("/", lead_to("/ui")),
        Route("/ui", door.page(shown.overview)),
        Route("/ui/jobs", door.page(shown.jobs)),
        Route("/ui/jobs/{job_id}", door.page(shown.job)),
        Route("/ui/jobs/{job_id}/{move}", door.action(moves.job), methods=["POST"]),
        Route("/ui/lanes", door.page(shown.lanes)),
        Route("/ui/lanes/{lane_id}", door.page(shown.lane)),
        Route("/ui/lanes/{lane_id}/{move}", door.action(moves.lane), methods=["POST"]),
        Route("/ui/history", door.page(shown.history)),
        Route("/ui/principals", door.page(shown.principals)),
        Route("/ui/tokens/{token_id}/revoke", door.action(moves.revoke), methods=["POST"]),
        *actions.addresses(),
        *signing.routes(door),
        *static.routes(),
        Route("/ui/{rest:path}", door.missing),
    ]
