"""Find the Lua files, compose each with the pieces its head names, and address it by its digest.

A composed script is: the ``#!lua`` line of the move, the limits and key functions that its text uses, the shared
pieces named in its head (in a fixed order), and the move itself. Pieces include nothing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from . import keys
from .contract import limit

# The order in which pieces stand in a composed script; a piece may use those before it.
PIECES = (
    "clock",
    "call",
    "token",
    "caller",
    "replay",
    "event",
    "ready",
    "waiter",
    "wake",
    "running",
    "claimable",
    "job",
    "lane",
    "sight",
    "visible",
    "shown",
    "covered",
)

LIMITS_IN_LUA = {
    "MAX_ATTEMPTS": "attempts",
    "MAX_GRANTS": "grants",
    "MAX_PARTICIPANTS": "participants",
    "STAR_PROJECTS": "star_projects",
    "REPLAY_LIBRARY": "replay_library",
    "REPLAY_CALLER": "replay_caller",
    "REPLAY_SHELF": "replay_shelf",
    "LIMITED_KINDS": "limited_kinds",
    "WAIT_LOOK": "wait_look",
    "WAIT_STAY": "wait_stay",
}

_PIECES_LINE = re.compile(r"^-- Pieces: +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """One move as the server sees it. ``origin`` tells, for each line, the file and line it came from."""

    name: str
    text: str
    origin: tuple[tuple[str, int], ...]

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def plain(self) -> Script:
        """The same script without its ``#!lua`` line, for the in-memory engine, which takes none."""
        return Script(self.name, "--" + self.text, self.origin)

    def locate(self, message: str) -> str:
        """Name the file and line behind a server's ``user_script:N``, or say only the move."""
        found = re.search(r"user_script:(\d+)", message)
        if found and 0 < int(found[1]) <= len(self.origin):
            file, line = self.origin[int(found[1]) - 1]
            return f"{file}:{line}"
        return f"{self.name}.lua"


def folder() -> Path:
    """Give the folder of the Lua files: beside the package in a checkout, inside it in a wheel."""
    inside = Path(__file__).parent / "lua"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "lua"


@cache
def script(name: str, source: Path | None = None) -> Script:
    """Compose one move from its file and the pieces its head names."""
    source = source or folder()
    body = (source / f"{name}.lua").read_text("utf-8")
    found = _PIECES_LINE.search(body)
    named = [piece.strip() for piece in found[1].split(",")] if found else []
    pieces = {piece: (source / f"_{piece}.lua").read_text("utf-8") for piece in PIECES if piece in named}
    whole = "\n".join((*pieces.values(), body))
    shebang, _, rest = body.partition("\n")
    limits = "".join(f"local {lua} = {limit(of)}\n" for lua, of in LIMITS_IN_LUA.items() if lua in whole)
    parts = [
        ("keys.py", limits + keys.lua_functions(whole)),
        *((f"_{piece}.lua", text) for piece, text in pieces.items()),
    ]
    lines, origin = [shebang], [(f"{name}.lua", 1)]
    for file, text in parts:
        lines += text.splitlines()
        origin += [(file, n) for n in range(1, len(text.splitlines()) + 1)]
    lines += rest.splitlines()
    origin += [(f"{name}.lua", n) for n in range(2, len(rest.splitlines()) + 2)]
    return Script(name, "\n".join(lines) + "\n", tuple(origin))


def names() -> list[str]:
    """List every move, by file name."""
    return sorted(path.stem for path in folder().glob("*.lua") if not path.name.startswith("_"))
