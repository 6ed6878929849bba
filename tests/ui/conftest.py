"""One site for each engine, and people with tokens of a fresh profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.queue import Engine, Queue
from tests.ui.site import Person, Site

People = Callable[..., Person]


@pytest.fixture(scope="session")
def sites() -> Iterator[dict[str, Site]]:
    started: dict[str, Site] = {}
    yield started
    for site in started.values():
        site.__exit__()


@pytest.fixture
def site(engine: Engine, sites: dict[str, Site]) -> Site:
    """The pages of every profile of the engine."""
    if engine.name not in sites:
        sites[engine.name] = Site(engine.url).__enter__()
    return sites[engine.name]


@pytest.fixture
def people(queue: Queue, site: Site) -> Iterator[People]:
    """Register a principal unless it is there, issue it a token, and sign it in."""
    met: list[Person] = []

    def meet(
        client_id: str = "ada", *grants: str, scope: str = "ops:write", conductor: bool = True, register: bool = True
    ) -> Person:
        if register:
            queue.principal(client_id, *grants, conductor=conductor)
        met.append(site.person(queue.shampoo.registry.issue_token(client_id, scope=scope).token))
        return met[-1]

    yield meet
    for person in met:
        person.close()


@pytest.fixture
def stranger(site: Site) -> Iterator[Person]:
    """Somebody who is not signed in."""
    person = site.visitor()
    yield person
    person.close()
