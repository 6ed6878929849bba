"""Serve the pages: who looks (a session), what a form must carry, and the headers and fragments of every answer."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...contract import limit
from ...errors import REFUSALS, Denied, NotFound, Refusal, Unauthenticated
from .. import answers
from ..answers import ClientGone
from ..visitor import internal
from . import words
from .channel import address_of, check_site, cookie_of, keep_cookie, read_form

if TYPE_CHECKING:
    from ..desk import Desk
    from ..sessions import Session

HERE = Path(__file__).parent
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
SIGN_IN = "/ui/sign-in"

# What a page can say after an action; refusals are said in the contract's own words.
FLASHES = {
    "released": "Released: the job is queued again.",
    "failed": "Completed as failed.",
    "requeued": "Requeued: the job is queued with no attempt spent.",
    "moved": "The lane's execution standing was moved.",
    "reviewed": "The lane's review standing was moved.",
    "merged": "The merge outcome was recorded.",
    "revoked": "Revoked: the token is refused from the next call on.",
    "unchanged": "The token was revoked before.",
}

# A counting clock is no change of what a fragment says.
_COUNTING = re.compile(r"(<time [^>]*data-counts[^>]*>)[^<]*")

Endpoint = Callable[[Request], Awaitable[Response]]
Form = Mapping[str, str]
SignedIn = Callable[[Request, "Session"], Awaitable[Response]]
Action = Callable[[Request, "Session", Form], Awaitable[Response]]


def environment() -> Environment:
    """Give the templates; whatever they are told is escaped, and what they are not told is an error."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters.update(words.FILTERS)
    found.globals |= {"attempts_max": limit("attempts")}
    found.globals |= {"parts": found.get_template("_parts.html").module}
    return found


def lead_to(address: str) -> Endpoint:
    """Make an endpoint that leads on to another address, with the parts of the path that it names."""

    async def endpoint(request: Request) -> Response:
        parts = {name: quote(value, safe="") for name, value in request.path_params.items()}
        return RedirectResponse(address.format_map(parts), 303, HEADERS)

    return endpoint


class Door:
    """What all pages of one desk share."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._templates = environment()

    # Answers --------------------------------------------------------------------------------------------------

    def show(
        self, request: Request, name: str, session: Session | None = None, status: int = 200, **facts: Any
    ) -> Response:
        """Render a page, or with ``?part=live`` those panels of it that stay fresh."""
        template = self._templates.get_template(name)
        known = {
            "visitor": session.visitor if session else None,
            "csrf": session.csrf if session else "",
            "flash": _flash(request, session),
            "path": request.url.path,
            "now": "",
            **facts,
        }
        if request.query_params.get("part") != "live" or status != 200:
            return HTMLResponse(template.render(known), status, HEADERS)
        context = template.new_context(known)
        live = [name for name in template.blocks if name.startswith("live")]
        return _fragments(request, {name: "".join(template.blocks[name](context)) for name in live})

    def refuse(self, request: Request, refusal: Refusal, session: Session | None = None) -> Response:
        """Say no, in the contract's words and with its status; nothing of the request is said again."""
        shown = self.show(request, "refusal.html", session, refusal.http_status, refusal=refusal)
        for name, value in answers.error_headers(refusal):
            if name == b"retry-after":
                shown.headers[name.decode()] = value.decode()
        return shown

    # Who looks ------------------------------------------------------------------------------------------------

    def page(self, show: SignedIn) -> Endpoint:
        """Make an endpoint of a page that only somebody signed in may see."""

        async def endpoint(request: Request) -> Response:
            session: Session | None = None
            try:
                session = await self.desk.sessions.find(cookie_of(request), address=address_of(request))
                if session is None:
                    return self.sign_in_first(request)
                answers.passage(request.scope).token_id = session.visitor.token_id
                return await show(request, session)
            except Unauthenticated:
                # The token ended since: the session ends with this click.
                await self.desk.sessions.end(cookie_of(request))
                return self.sign_in_first(request)
            except Refusal as refusal:
                return self.refuse(request, refusal, session)
            except ClientGone:
                raise
            except Exception as error:
                return self.refuse(request, internal(f"page {answers.hidden(request.url.path)}", error), session)

        return endpoint

    async def missing(self, request: Request) -> Response:
        """Say that there is no such page, to anybody; a blank end of a path is forgiven."""
        path = request.url.path
        if path.endswith("/"):
            return RedirectResponse(path.rstrip("/"), 303, HEADERS)
        return self.refuse(request, NotFound("there is no such page"), await self._known(request))

    async def _known(self, request: Request) -> Session | None:
        """Give the session of a live token; None for a stranger."""
        try:
            session = await self.desk.sessions.find(cookie_of(request), address=address_of(request))
            if session:
                await session.visitor.prove()
        except Refusal:
            return None
        return session

    def action(self, act: Action) -> Endpoint:
        """Make an endpoint of a move: its form carries the session's word, its token may write."""

        async def checked(request: Request, session: Session) -> Response:
            form = await read_form(request)
            check_site(request)
            if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
                raise Denied("this form belongs to no session of yours; load the page again")
            if not session.visitor.may("ops:write"):
                await session.visitor.prove()
                raise Denied("your token may look, not change: that needs the scope ops:write")
            return await act(request, session, form)

        return self.page(checked)

    def sign_in_first(self, request: Request) -> Response:
        """Lead to the sign-in page; a live panel is told so by the status alone."""
        if "part" in request.query_params:
            return Response(status_code=401, headers=HEADERS)
        gone = RedirectResponse(SIGN_IN, 303, HEADERS)
        if cookie_of(request):  # a link from another site comes without the cookie, and must not end the session
            keep_cookie(request, gone, "", 0)
        return gone


def _fragments(request: Request, panels: Mapping[str, str]) -> Response:
    html = "".join(f'<template data-part="{name}">{inner}</template>' for name, inner in panels.items())
    tag = '"' + hashlib.sha256(_COUNTING.sub(r"\1", html).encode()).hexdigest()[:32] + '"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={**HEADERS, "ETag": tag})
    return HTMLResponse(html, headers={**HEADERS, "ETag": tag})


# Flash lines ------------------------------------------------------------------------------------------------------


def back(session: Session, path: str, code: str) -> Response:
    """Lead back to a page that says how an action ended: a code of ours, sealed with the session's word."""
    return RedirectResponse(f"{path}?flash={code}.{_seal(session, path, code)}", 303, HEADERS)


def _flash(request: Request, session: Session | None) -> dict[str, str] | None:
    code, _, seal = request.query_params.get("flash", "").partition(".")
    if session is None or not seal.isascii() or not hmac.compare_digest(seal, _seal(session, request.url.path, code)):
        return None
    if code in FLASHES:
        return {"text": FLASHES[code], "tone": "completed"}
    return {"text": f"Refused: {REFUSALS[code].words}.", "tone": "failed"} if code in REFUSALS else None


def _seal(session: Session, path: str, code: str) -> str:
    return hmac.new(session.csrf.encode(), f"{path} {code}".encode(), hashlib.sha256).hexdigest()[:20]
