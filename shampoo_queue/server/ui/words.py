"""Write facts for people: texts of others made harmless to a line, lengths of time, sizes, links."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote

from markupsafe import Markup, escape

# Letters and marks by their category that draw nothing all the same: fillers, blanks, variation selectors and such.
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc\U00016fe4\U0001d159"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
_UNUSUAL = re.compile(r"[^ -~\t\n]")
_BREAKS = re.compile(r"[\t\n]")
_MARKS = 3  # that may stack on one letter; more pile up over the lines around it
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
    shown = _BREAKS.sub(" ", _named(whole[:most]))
    if len(whole) > most:
        shown += "…"
    elif whole.endswith(" "):
        shown = shown[:-1] + _name(" ")
    if whole.startswith(" ") and shown.startswith(" "):
        shown = _name(" ") + shown[1:]
    return Markup('<bdi class="said">{}</bdi>').format(shown)


def block(text: str) -> Markup:
    """Show a longer text of others with its own lines."""
    return escape(_named(text.replace("\r\n", "\n")))


def _named(text: str) -> str:
    """Name whatever turns the reading direction, hides, cannot be drawn or piles up: ‹U+202E›."""
    stack = _MARKS  # a text's first mark would stand on what is before the text

    def unusual(found: re.Match[str]) -> str:
        nonlocal stack
        c, at = found[0], found.start()
        if unicodedata.category(c)[0] != "M":
            stack = 0
        else:
            plain = at > 0 and not _UNUSUAL.match(text, at - 1)
            stack = 1 if plain else stack + 1
        hidden = not c.isprintable() or c in _BLANK
        return _name(c) if hidden or stack > _MARKS else c

    return _UNUSUAL.sub(unusual, text)


def _name(c: str) -> str:
    return f"‹U+{ord(c):04X}›"


def coded(text: str) -> Markup:
    """Show a text of ours, with what stands between double backticks as code."""
    parts = text.split("``")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part) for n, part in enumerate(parts)
    )


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


def short(milliseconds: float | None, exact: bool = True) -> str:
    """Write a measured length, from milliseconds to hours; None is a dash."""
    if milliseconds is None:
        return "–"
    if not exact:
        return f"about {short(_two_digits(milliseconds))}"
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


def count(number: float, exact: bool = True) -> str:
    """Write a number with its thousands apart; one reckoned from a sample with the two digits it is good for."""
    return f"{number:,.0f}" if exact else f"about {_two_digits(number):,.0f}"


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")


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
    "coded": coded,
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
