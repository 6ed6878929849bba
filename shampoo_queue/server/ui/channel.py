"""Read what a browser sends: small forms, from which site and over what kind of channel, and the session's cookie."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ...errors import BadRequest, Denied, TooLarge
from .. import answers

FORM_LIMIT = 64 * 1024  # bytes; a result_ref of 2,048 bytes is 6,144 in a form
FIELDS_LIMIT = 20
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# A browser sends none of these: with one of them the request came through a proxy.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")


async def read_form(request: Request) -> dict[str, str]:
    """Read a small form; raise `BadRequest` or `TooLarge`."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > FORM_LIMIT:
            raise TooLarge(f"a form has at most {FORM_LIMIT:,} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_LIMIT, errors="strict")
    except ValueError:
        raise BadRequest("the form cannot be read") from None
    return dict(pairs)


def check_site(request: Request) -> None:
    """Refuse a form that another site's page sends, as far as the browser tells.

    The pages send no referrer, so a browser names their origin ``null``; ``Sec-Fetch-Site`` tells what is so.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    # A proxy may have written its own address into Host: what the browser itself tells comes first.
    foreign = origin not in (None, "null") and urlsplit(origin or "").netloc != request.headers.get("host")
    if site not in (None, "same-origin", "none") or (site != "same-origin" and foreign):
        raise Denied("this form was not sent by a page of this server")


def check_channel(request: Request) -> None:
    """Refuse to take a token over a network in clear; a browser on this very machine may.

    The scheme is what the guard knows, behind a proxy that of the way to the proxy. A proxy often writes its own
    address into ``Host``, so that alone never makes a way in clear a local one.
    """
    if _secure(request):
        return
    forwarded = any(name in request.headers for name in _FORWARDED)
    if forwarded or (request.url.hostname or "") not in LOOPBACK:
        raise Denied("sign in over https; in clear only on localhost")


def address_of(request: Request) -> str:
    """Give the address that the request came from."""
    return answers.passage(request.scope).address or (request.client.host if request.client else "")


def cookie_of(request: Request) -> str | None:
    """Give the session's cookie."""
    return request.cookies.get(_name(request))


def keep_cookie(request: Request, answer: Response, cookie: str, seconds: int) -> None:
    """Let the browser keep a session's cookie; one that ends at once is forgotten."""
    answer.set_cookie(
        _name(request), cookie, seconds, path="/", secure=_secure(request), httponly=True, samesite="strict"
    )


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _name(request: Request) -> str:
    return "__Host-shampoo" if _secure(request) else "shampoo"
