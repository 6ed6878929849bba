"""Name every Redis key of a profile once: its type, its meaning, and the Lua function that spells it.

Every key begins with ``shampoo:{profile}:``. The braces are the hash tag, so a profile lives in one cluster
slot, and because a profile's name holds no brace, no text further right can move a key into another slot.

Free text comes into a key name in one way only: the last part stands as it is, and a part before it has ``%``
and ``:`` written as ``%25`` and ``%3A``. Two different names therefore never share a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PROFILE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """One family of keys. ``fixed`` parts are words of ours and are never escaped."""

    name: str
    type: str
    parts: tuple[str, ...]
    meaning: str

    def pattern(self) -> str:
        """Give the family's name as people write it, for instance ``job:<job_id>``."""
        return ":".join((self.name, *(f"<{part}>" for part in self.parts)))

    def lua(self) -> str:
        """Render ``key_name(…)``, which spells one key of the family."""
        arguments = [f"a{n}" for n in range(1, len(self.parts) + 1)]
        spelled = [f"P .. '{self.name}'"]
        for n, argument in enumerate(arguments, 1):
            spelled.append("':'")
            spelled.append(argument if n == len(arguments) else f"escaped({argument})")
        return f"local function key_{self.name}({', '.join(arguments)}) return {' .. '.join(spelled)} end"


KEYS = (
    Key("profile", "hash", (), "the profile's counter `seq`: the number of its newest event"),
    Key("history", "stream", (), "every accepted move, oldest first; an entry's id is `<event number>-0`"),
    Key("principal", "hash", ("client_id",), "standing, conductor, one field `grant:<project>` a grant"),
    Key("principals", "zset", (), "every client_id, by the number of the event that added it"),
    Key("joined", "hash", ("client_id",), "the quorums a principal takes part in: quorum_id to project"),
    Key("quorum", "hash", ("quorum_id",), "project, standing, one field `participant:<client_id>` a participant"),
    Key("quorums", "zset", (), "every quorum_id, by the number of the event that opened it"),
    Key("task", "hash", ("task_id",), "standing: live or closed"),
    Key("tasks", "zset", (), "every task_id, by the number of the event that added it"),
    Key("token", "hash", ("token_id",), "client_id, scope, standing, expires_at, and the digest of one token"),
    Key("tokens", "zset", (), "every token's id, by the number of the event that issued it"),
    Key("job", "hash", ("job_id",), "one job, its payload apart"),
    Key("jobs_of", "zset", ("lane_id",), "job ids of a lane, by the number of the event that created each"),
    Key("payload", "string", ("job_id",), "the job's payload, verbatim; no key when it is empty"),
    Key(
        "ready",
        "zset",
        ("project", "kind"),
        "jobs with attempts left, `<seq>:<job_id>` by the millisecond from which each is claimable: queued since, "
        "or claimed until",
    ),
    Key("kinds", "zset", ("project",), "kinds with an entry in `ready`, `<seq>:<kind>` by their earliest entry"),
    Key("projects", "zset", (), "projects with an entry in `kinds`, `<seq>:<project>` by their earliest entry"),
    Key("projects_of", "zset", ("kind",), "projects with an entry in `ready` of this kind, by their earliest entry"),
    Key("turns", "hash", (), "project to the number of the event that last served it"),
    Key("spent", "zset", (), "job ids with no attempt left and no outcome yet, by the millisecond the last lease ends"),
    Key("damaged", "zset", (), "job ids whose hash was edited beyond use, by the millisecond a claim set them aside"),
    Key("kind", "hash", ("kind",), "an operator's limit of a kind, `limit`; empty when it was lifted"),
    Key("limits", "hash", (), "the kinds that have a limit: kind to how many may run at a time"),
    Key("running", "zset", ("kind",), "claimed jobs of a kind by the millisecond the lease ends, lapsed ones included"),
    Key("waiting", "zset", ("kind",), "idle callers asking for a kind (the empty one is any), by when that lapses"),
    Key(
        "waiter",
        "hash",
        ("waiter",),
        "one idle caller: client_id, holder, a field `kind:<kind>` a kind, the number it `watches`; expires",
    ),
    Key("wake", "list", ("waiter",), "the sign for an idle caller to claim; expires by itself"),
    Key("watched", "zset", (), "numbers of jobs due soon, by when an idle caller looks, and a `second`; expires"),
    Key("lane", "hash", ("lane_id",), "one lane"),
    Key("lanes", "zset", ("state", "scope", "name"), "lane ids by seq, in one state, of a scope: all, project, quorum"),
    Key("replay", "string", ("slot", "client_id"), "answers remembered by request id; expires by itself"),
)

# What belongs to no profile, because it is what leads to one. No profile can be named so.
OUTSIDE = "-"
OUTSIDE_KEYS = (
    Key("token", "string", ("token_id",), "scope, profile and client_id of one token, apart by blanks; never changes"),
    Key("profiles", "set", (), "every profile in which a token was issued"),
    Key("session", "string", ("session",), "one sign-in to the pages, by the digest of its cookie; expires by itself"),
)

BY_NAME = {key.name: key for key in KEYS}


def prefix(profile: str) -> str:
    """Give the text that every key of a profile begins with."""
    return f"shampoo:{{{profile}}}:"


def spell(profile: str, name: str, *parts: str) -> str:
    """Spell one key as the scripts do, for readers outside a script."""
    *inner, last = parts or ("",)
    escaped = [part.replace("%", "%25").replace(":", "%3A") for part in inner]
    return prefix(profile) + ":".join((name, *escaped, last) if parts else (name,))


ESCAPED_LUA = """local function escaped(text)
  if not text:find('[%%:]') then return text end
  return (text:gsub('[%%:]', { ['%'] = '%25', [':'] = '%3A' }))
end"""


def lua_functions(body: str) -> str:
    """Render the key functions that a script's text calls, and no others: each run of a script defines them anew."""
    named = set(re.findall(r"\bkey_(\w+)", body))
    used = [key for key in KEYS if key.name in named]
    lines = ["local P = KEYS[1]:sub(1, -8) -- the profile's prefix: KEYS[1] is its key `profile`"]
    if any(len(key.parts) > 1 for key in used):
        lines.append(ESCAPED_LUA)
    return "\n".join(lines + [key.lua() for key in used]) + "\n"
