"""The options that may stand anywhere on the line, and the queue that they open."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..client import Shampoo

DEFAULT_PROFILE = "default"

_VARIABLES = {
    "url": "SHAMPOO_URL",
    "profile": "SHAMPOO_PROFILE",
    "operator": "SHAMPOO_OPERATOR",
    "caller": "SHAMPOO_CLIENT",
    "holder": "SHAMPOO_HOLDER",
}


@dataclass
class Settings:
    """What the line said so far outside the arguments of its command; None where it said nothing."""

    url: str | None = None
    profile: str | None = None
    operator: str | None = None
    json: bool = False
    caller: str | None = None
    holder: str | None = None
    request_id: str | None = None
    fence: str | None = None
    arguments: str | None = None
    meta: bool = False

    def wanted(self, name: str) -> str | None:
        """Give what the line says, or else the environment; an empty variable says nothing."""
        said: str | None = getattr(self, name)
        return said if said is not None else as_utf8(os.environ.get(_VARIABLES[name], "")) or None

    def open(self) -> Shampoo:
        """Open the profile of the queue; raise `ConfigurationError` or `EngineError`."""
        from ..client import DEFAULT_URL, Shampoo

        url, profile = self.wanted("url"), self.wanted("profile")
        return Shampoo.connect(
            DEFAULT_URL if url is None else url,
            profile=DEFAULT_PROFILE if profile is None else profile,
            operator=self.wanted("operator"),
        )


def own_arguments() -> list[str]:
    """Give this process's arguments as text."""
    return [as_utf8(argument) for argument in sys.argv[1:]]


def as_utf8(text: str) -> str:
    """Read again as UTF-8 what the locale could not decode; bytes that are not UTF-8 stay lone surrogates."""
    if re.search("[\ud800-\udfff]", text):
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    return text


def whole(text: str) -> int | str:
    """Read a whole number; give any other text as it is, so that the contract refuses it in its own words."""
    if not re.fullmatch("-?[0-9]+", text):
        return text
    # Python refuses to read thousands of digits; nothing here tells one number of a hundred digits from another.
    number = int(text.lstrip("-").lstrip("0")[:100] or "0")
    return -number if text.startswith("-") else number


def current() -> Settings:
    """Give the settings of the running command."""
    return click.get_current_context().ensure_object(Settings)


class Anywhere(click.Option):
    """An option of the whole line: accepted before and after a command's name, and the one given last wins."""

    def __init__(self, *declared: Any, **facts: Any) -> None:
        super().__init__(declared, expose_value=False, callback=self._store, **facts)

    @staticmethod
    def _store(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(context.ensure_object(Settings), str(option.name), value)


def everywhere(hidden: bool) -> list[click.Parameter]:
    """Make the options that every command takes; only the program's own help shows them."""
    return [
        Anywhere(
            "--url", metavar="URL", hidden=hidden, help="Where the queue is; SHAMPOO_URL, else the embedded server."
        ),
        Anywhere("--profile", metavar="NAME", hidden=hidden, help="The profile; SHAMPOO_PROFILE, else default."),
        Anywhere(
            "--operator",
            metavar="NAME",
            hidden=hidden,
            help="Who makes operators' moves in the history; SHAMPOO_OPERATOR, else the system's user.",
        ),
        Anywhere("--json", is_flag=True, hidden=hidden, help="Answer in JSON on a terminal too."),
    ]


def _with_everywhere(params: list[click.Parameter]) -> list[click.Parameter]:
    known = {param.name for param in params}
    return params + [option for option in everywhere(hidden=True) if option.name not in known]


class Command(click.Command):
    """A command that takes the options of the whole line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", "The options of 'shampoo --help' may stand here too.")
        super().__init__(*args, **kwargs)
        self.params = _with_everywhere(self.params)


class Group(click.Group):
    """A group of commands that takes the options of the whole line."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = _with_everywhere(self.params)
