"""Sign in with a token, and out."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ...errors import Denied, Refusal
from ..sessions import SESSION_SECONDS
from . import channel
from .door import HEADERS, SIGN_IN, Door

# A pasted token brings line ends and blanks along; nothing else is forgiven.
_AROUND = " \t\r\n"


def routes(door: Door) -> list[BaseRoute]:
    """Give the routes of signing in and out."""

    async def gate(request: Request) -> Response:
        return door.show(request, "sign_in.html", refusal=None)

    async def sign_in(request: Request) -> Response:
        try:
            form = await channel.read_form(request)
            channel.check_site(request)
            channel.check_channel(request)
            token = form.get("token", "").strip(_AROUND)
            cookie, _ = await door.desk.sessions.begin(token, address=channel.address_of(request))
        except Refusal as refusal:
            return door.show(request, "sign_in.html", status=refusal.http_status, refusal=refusal)
        # A session of before ends: two of one browser would only outlive each other.
        await door.desk.sessions.end(channel.cookie_of(request))
        entered = RedirectResponse("/ui", 303, HEADERS)
        channel.keep_cookie(request, entered, cookie, SESSION_SECONDS)
        return entered

    async def sign_out(request: Request) -> Response:
        try:
            session = await door.desk.sessions.find(channel.cookie_of(request), address=channel.address_of(request))
            form = await channel.read_form(request)
            channel.check_site(request)
            if session and not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
                raise Denied("this form belongs to no session of yours; load the page again")
            await door.desk.sessions.end(channel.cookie_of(request))
        except Refusal as refusal:
            return door.refuse(request, refusal)
        return door.sign_in_first(request)

    return [
        Route(SIGN_IN, gate),
        Route(SIGN_IN, sign_in, methods=["POST"]),
        Route("/ui/sign-out", sign_out, methods=["POST"]),
    ]
