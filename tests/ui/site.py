"""The pages on a real server in this process, people who look at them, and a strict reader of HTML."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Mapping
from functools import partial
from html.parser import HTMLParser
from typing import Any, Self

import httpx2
import uvicorn
from starlette.routing import Router

from shampoo_queue.server import catalogue, ui
from shampoo_queue.server.desk import Desk
from shampoo_queue.server.guard import Guard, Rules

SECONDS = 20.0
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "path", "polyline", "rect"})


class Site:
    """Serves every profile of an engine; use it with ``with``."""

    def __init__(self, url: str, rules: Rules | None = None, **options: Any) -> None:
        self._desk_of = partial(Desk, url, failed_per_minute=1_000_000, **options)
        self._rules = rules or Rules(hosts=("shampoo.example",))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        async with self._desk_of() as desk:
            routes = [*catalogue.routes(desk), *ui.routes(desk)]
            app = Guard(Router(routes, redirect_slashes=False), desk, self._rules)
            config = uvicorn.Config(
                app, log_level="critical", lifespan="off", proxy_headers=False, timeout_graceful_shutdown=2
            )
            self._server = uvicorn.Server(config)
            self._loop = asyncio.get_running_loop()
            self._started.set()
            await self._server.serve([self._socket])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "the server does not stop"
        self._socket.close()

    def visitor(self) -> Person:
        """Give somebody who is not signed in."""
        return Person(self)

    def person(self, token: str) -> Person:
        """Give somebody who is."""
        person = Person(self)
        signed_in = person.post("/ui/sign-in", token=token)
        assert signed_in.status_code == 303, signed_in.text
        return person


class Person:
    """A browser without a script: follows no redirect by itself, sends the word of its session with each form."""

    def __init__(self, site: Site) -> None:
        self.client = httpx2.Client(base_url=site.address, timeout=SECONDS)
        self.csrf = ""

    def get(self, path: str, **headers: str) -> httpx2.Response:
        answer = self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
        self.csrf = found[1] if found else self.csrf
        return answer

    def post(self, path: str, headers: Mapping[str, str] | None = None, /, **form: str) -> httpx2.Response:
        if not self.csrf and path != "/ui/sign-in":
            self.get("/ui")
        return self.client.post(path, data={"csrf": self.csrf, **form}, headers=headers)

    def move(self, path: str, **form: str) -> str:
        """Send a form, follow the way back, and give what the page says of it."""
        answer = self.post(path, **form)
        assert answer.status_code == 303, answer.text
        shown = self.get(answer.headers["location"])
        assert shown.status_code == 200
        said = re.search(r'<p class="flash tone-\w+" role="status">([^<]*)</p>', shown.text)
        assert said, "the page says nothing of it"
        return said[1].replace("&#39;", "'")

    def close(self) -> None:
        self.client.close()


class Strict(HTMLParser):
    """Finds what a page may not have; ``problems`` says it, ``text`` is what is read, ``tags`` what is there."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.problems += [f"<{tag}> stays open" for tag in self._open]
        self._check_ids()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if len(names) != len(given):
            self.problems.append(f"<{tag}> has an attribute twice")
        for name in names:
            if name == "style" or name.startswith("on"):
                self.problems.append(f"<{tag}> has {name}")
        if tag == "style" or (tag == "script" and "src" not in given):
            self.problems.append(f"<{tag}> has content of its own")
        for name in ("href", "src", "action"):
            if not given.get(name, "/").startswith(("/", "#")) or given.get(name, "").startswith("//"):
                self.problems.append(f"<{tag}> leads away: {given[name]}")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.problems.append(f"</{tag}> within {self._open[-3:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data

    def _check_ids(self) -> None:
        ids = [given["id"] for _, given in self.tags if "id" in given]
        self.problems += [f"id {one} is there twice" for one in sorted(set(ids)) if ids.count(one) > 1]
        for tag, given in self.tags:
            for name in ("for", "aria-labelledby", "aria-describedby"):
                self.problems += [
                    f"<{tag} {name}> names no {one}" for one in given.get(name, "").split() if one not in ids
                ]
