"""Write facts for people: texts of others made harmless to a line, lengths of time, sizes, links."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote

from markupsafe import Markup, escape

# What turns the reading direction, hides, or cannot be drawn is named instead: U+202E. Lines may end where asked.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff]")
_BREAKS = re.compile(r"[\t\n]")
SAID_CHARACTERS = 160
PAYLOAD_BYTES = 16_384

_KINDS_OF_EVENT = {
    "job.created": "queued",
    "job.claimed": "claimed",
    "job.reclaimed": "lapsed",
    "job.completed": "completed",
    "job.failed": "failed",
    "job.released": "queued",
    "job.requeued": "delayed",
    "lane.created": "open",
    "token.issued": "live",
    "token.revoked": "revoked",
    "principal.disabled": "failed",
}


def said(text: object, most: int = SAID_CHARACTERS, unset: str = "") -> Markup:
    """Show a text of others in a line: isolated from the text around it, cut, nothing invisible left in it."""
    whole = str(text)
    if not whole:
        return Markup('<span class="nothing">{}</span>').format(unset) if unset else Markup("")
    shown = _named(_BREAKS.sub(" ", whole[:most])) + ("…" if len(whole) > most else "")
    return Markup('<bdi class="said">{}</bdi>').format(shown)


def block(text: str) -> Markup:
    """Show a longer text of others with its own lines."""
    return escape(_named(text.replace("\r\n", "\n")))


def _named(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"‹U+{ord(found[0]):04X}›", text)


def length(seconds: float) -> str:
    """Write a length of time with the two units that matter."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole // 60 % 60} min"
    return f"{whole // 86_400} d {whole // 3_600 % 24} h"


def short(milliseconds: float | None) -> str:
    """Write a measured length, from milliseconds to hours."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    text = f"{milliseconds / 1_000:.1f} s" if milliseconds < 60_000 else length(milliseconds / 1_000)
    return re.sub(r" 0 (s|min|h)$", "", text)


def size(count: int) -> str:
    """Write a number of bytes."""
    amount, units = float(count), ["KiB", "MiB", "GiB", "TiB"]
    if count < 1_024:
        return f"{count} B"
    while amount >= 1_024 and units:
        amount, unit = amount / 1_024, units.pop(0)
    return f"{amount:.1f} {unit}"


def count(number: float) -> str:
    """Write a number with its thousands apart."""
    return f"{number:,.0f}"


def instant(at: str) -> datetime:
    """Read an instant as the doors write it."""
    return datetime.fromisoformat(at)


def day(at: str) -> str:
    """Write an instant to the second."""
    return f"{at[:10]} {at[11:19]}" if at else ""


def left(at: str, now: str) -> str:
    """Write how long it is until an instant."""
    seconds = (instant(at) - instant(now)).total_seconds()
    return f"{length(seconds)} left" if seconds > 0 else "lapsed"


def since(at: str, now: str) -> str:
    """Write how long ago an instant was."""
    return length(max(0.0, (instant(now) - instant(at)).total_seconds()))


def milliseconds(at: str) -> int:
    """Give an instant as the script counts it."""
    return round(instant(at).timestamp() * 1_000)


def words(name: str) -> str:
    """Write a name of ours as words."""
    return name.replace("_", " ")


def tone(event: str, to: str = "") -> str:
    """Say in which colour an event is drawn."""
    return _KINDS_OF_EVENT.get(event) or (to if event.startswith("lane.") and to else "none")


def job_at(job_id: str) -> str:
    """Give the address of a job's page."""
    return f"/ui/jobs/{quote(job_id, safe='')}"


def lane_at(lane_id: str) -> str:
    """Give the address of a lane's page."""
    return f"/ui/lanes/{quote(lane_id, safe='')}"


FILTERS: dict[str, Callable[..., object]] = {
    "said": said,
    "block": block,
    "lasting": length,
    "short": short,
    "size": size,
    "count": count,
    "day": day,
    "left": left,
    "since": since,
    "milliseconds": milliseconds,
    "words": words,
    "tone": tone,
    "job_at": job_at,
    "lane_at": lane_at,
}
