"""Sign in with a token, and out: who may, with which cookie, for how long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shampoo_queue.server.guard import Rules
from tests.conftest import REAL
from tests.queue import Engine, Queue
from tests.ui.conftest import People
from tests.ui.site import Person, Site

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)


def token_of(queue: Queue, scope: str) -> str:
    queue.principal("ada", "*")
    return queue.shampoo.registry.issue_token("ada", scope=scope).token


@pytest.mark.parametrize("path", ["/ui", "/ui/jobs", "/ui/jobs/x", "/ui/lanes", "/ui/history", "/ui/principals"])
def test_every_page_leads_a_stranger_to_the_sign_in_page(stranger: Person, path: str) -> None:
    answer = stranger.get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/sign-in")
    assert "set-cookie" not in answer.headers, "a link from another site must not end a session"
    assert stranger.get(f"{path}?part=live").status_code == 401
    assert stranger.get("/ui/sign-in").status_code == 200


@pytest.mark.parametrize("scope", ["ops:read", "ops:write"])
def test_a_token_with_an_ops_scope_signs_in_and_out(queue: Queue, site: Site, stranger: Person, scope: str) -> None:
    token = token_of(queue, scope)
    answer = stranger.post("/ui/sign-in", token=f"  {token}\n")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("shampoo=")
    for wanted in ("httponly", "samesite=strict", "path=/", "max-age=43200"):
        assert wanted in cookie
    assert "secure" not in cookie
    assert "domain" not in cookie
    assert stranger.get("/ui").status_code == 200
    assert stranger.post("/ui/sign-out").status_code == 303
    assert stranger.get("/ui").status_code == 303


def test_redis_keeps_neither_the_token_nor_the_cookie(queue: Queue, stranger: Person) -> None:
    token = token_of(queue, "ops:read")
    stranger.post("/ui/sign-in", token=token)
    cookie = stranger.client.cookies["shampoo"]
    sessions = queue.command("KEYS", "shampoo:{-}:session:*")
    assert sessions
    for name in sessions:
        kept = name + queue.command("GET", name)
        assert token[-46:].encode() not in kept
        assert cookie.encode() not in kept
        assert 0 < queue.command("TTL", name) <= 43_200


def test_a_session_is_over_everywhere_once_it_is_signed_out(people: People) -> None:
    ada = people("ada", "*")
    kept = dict(ada.client.cookies)
    ada.post("/ui/sign-out")
    ada.client.cookies.update(kept)
    assert ada.get("/ui").status_code == 303


@pytest.fixture
def proxied(engine: Engine) -> Iterator[Person]:
    """A stranger who comes through a proxy of ours."""
    with Site(engine.url, Rules(hosts=("shampoo.example",), behind_proxy=True)) as site:
        person = site.visitor()
        yield person
        person.close()


def named(person: Person, host: str) -> str:
    """Give the Host that a proxy sends: what the browser asked for, or its own way to us."""
    return host.replace("PORT", str(person.client.base_url.port))


@pytest.mark.parametrize("host", ["shampoo.example", "127.0.0.1:PORT"])
@pytest.mark.parametrize("proto", ["https", "", "http, https"])
def test_behind_a_proxy_people_sign_in_and_the_cookie_is_bound_to_the_host(
    queue: Queue, proxied: Person, host: str, proto: str
) -> None:
    headers = {"Host": named(proxied, host), **({"X-Forwarded-Proto": proto} if proto else {})}
    browser = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
    answer = proxied.post("/ui/sign-in", headers | browser, token=token_of(queue, "ops:read"))
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-shampoo=")
    for wanted in ("httponly", "samesite=strict", "path=/", "secure"):
        assert wanted in cookie.lower()
    value = cookie.partition("=")[2].partition(";")[0]
    shown = proxied.client.get("/ui", headers=headers | {"Cookie": f"__Host-shampoo={value}"})
    assert shown.status_code == 200
    for clear in ({"Cookie": f"shampoo={value}"}, {"Cookie": f"__Host-shampoo={value}", "X-Forwarded-Proto": "http"}):
        assert proxied.client.get("/ui", headers=headers | clear).status_code == 303, "that cookie is not read"


@pytest.mark.parametrize("host", ["shampoo.example", "127.0.0.1:PORT"])
def test_a_token_is_not_taken_when_the_way_to_the_proxy_is_in_clear(queue: Queue, proxied: Person, host: str) -> None:
    headers = {"Host": named(proxied, host), "X-Forwarded-Proto": "http"}
    answer = proxied.post("/ui/sign-in", headers, token=token_of(queue, "ops:read"))
    assert answer.status_code == 403
    assert "https" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "shampoo.example"},
        {"Host": "shampoo.example", "X-Forwarded-Proto": "https"},
        {"X-Forwarded-For": "192.0.2.7"},
        {"Forwarded": "for=192.0.2.7;proto=https"},
    ],
)
def test_a_token_is_not_taken_over_a_network_in_clear(queue: Queue, stranger: Person, headers: dict[str, str]) -> None:
    """What a proxy that nobody announced says is not believed, and its own address in Host makes nothing local."""
    token = token_of(queue, "ops:read")
    answer = stranger.post("/ui/sign-in", headers, token=token)
    assert answer.status_code == 403
    assert "https" in answer.text
    assert stranger.post("/ui/sign-in", token=token).status_code == 303


@pytest.mark.parametrize("scope", ["tools", "tools:read", "metrics"])
def test_a_token_of_another_scope_is_refused(queue: Queue, stranger: Person, scope: str) -> None:
    token = token_of(queue, scope)
    answer = stranger.post("/ui/sign-in", token=token)
    assert answer.status_code == 403
    assert "outside client scope" in answer.text
    assert token not in answer.text
    assert "set-cookie" not in answer.headers


def test_whatever_is_wrong_with_a_token_the_page_is_the_same(queue: Queue, stranger: Person) -> None:
    registry = queue.shampoo.registry
    token = token_of(queue, "ops:read")
    revoked = registry.issue_token("ada", scope="ops:read")
    registry.revoke_token(revoked.token_id)
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    odd = ["", " ", "x", wrong, revoked.token, "shp_", "é\x00\n<b>", "🦊" * 40, "x" * 10_000]
    pages = {(answer.status_code, answer.text) for one in odd for answer in [stranger.post("/ui/sign-in", token=one)]}
    assert len(pages) == 1
    status, text = pages.pop()
    assert status == 401
    assert "This token is not accepted: it is wrong, expired or revoked." in text


def test_a_form_of_another_site_is_refused(queue: Queue, stranger: Person) -> None:
    token = token_of(queue, "ops:read")
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert stranger.post("/ui/sign-in", headers, token=token).status_code == 403
    assert not stranger.client.cookies
    assert stranger.post("/ui/sign-in", {"Sec-Fetch-Site": "same-origin"}, token=token).status_code == 303


def test_browsers_that_hide_the_origin_may_sign_in(queue: Queue, stranger: Person) -> None:
    """The pages send no referrer, so that a browser says ``null`` for their origin."""
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
    assert stranger.post("/ui/sign-in", headers, token=token_of(queue, "ops:read")).status_code == 303


def test_a_revoked_token_ends_its_session_with_the_next_click(queue: Queue, people: People) -> None:
    ada, eve = people("ada", "*"), people("eve", "*")
    registry = queue.shampoo.registry
    token = next(token for token in registry.tokens() if token.client_id == "ada")
    registry.revoke_token(token.token_id)
    assert ada.get("/ui/jobs?part=live").status_code == 401
    for path in ("/ui", "/ui/jobs", "/ui/lanes", "/ui/history", "/ui/principals"):
        assert ada.get(path).status_code == 303
        assert eve.get(path).status_code == 200


def test_a_disabled_principal_is_out_and_back_only_by_signing_in(queue: Queue, people: People) -> None:
    ada = people("ada", "*")
    queue.shampoo.registry.disable_principal("ada")
    assert ada.get("/ui").status_code == 303
    queue.shampoo.registry.enable_principal("ada")
    assert ada.get("/ui").status_code == 303


def test_a_large_or_broken_form_is_refused(stranger: Person) -> None:
    assert stranger.post("/ui/sign-in", token="x" * 70_000).status_code == 413
    many = "&".join(f"a{n}=1" for n in range(100))
    broken = stranger.client.post("/ui/sign-in", content=many)
    assert broken.status_code == 400
    assert stranger.client.post("/ui/sign-in", content=b"token=%ff%fe").status_code in (400, 401)


@pytest.mark.parametrize("cookie", ["x", "a" * 43, "é", "../../x", "", "a" * 5_000])
def test_an_odd_cookie_is_no_session(stranger: Person, cookie: str) -> None:
    headers = [(b"cookie", b"shampoo=" + cookie.encode())]
    answer = stranger.client.get("/ui", headers=headers)
    assert answer.status_code == 303
