"""Read and write this process's streams, whatever they are: pipes, terminals, files, closed, in any encoding."""

from __future__ import annotations

import io
import json
import os
import re
import select
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any

from ..errors import InvalidArgument

# What a terminal would obey rather than show: controls, and characters that reorder or break a line.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# JSON has escaped the first of them already.
_OBEYED_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# What a URL, wherever in a line, may keep secret: its user info, and the values of options that name a secret.
_USER_INFO = re.compile(r"://[^'\"\n]*@")
_SECRET_OPTION = re.compile(r"([?&][^=&\s]*(?:pass|secret|token|user)[^=&\s]*=)[^&\s'\"]*", re.IGNORECASE)


class ReaderGone(Exception):
    """Whoever read standard output has left, which is no failure."""


class AnswerLost(Exception):
    """Standard output cannot take the answer, for instance because the disk is full."""

    def __init__(self, reason: str, answer: str, moved: bool) -> None:
        super().__init__(f"standard output cannot be written: {reason}")
        self.answer, self.moved = answer, moved


def prepare() -> None:
    """Hold the three standard descriptors, so that no socket or lock gets a number that others write to.

    A closed standard output becomes a pipe whose reader has left, and then is treated as one.
    """
    if not _is_open(0):
        os.open(os.devnull, os.O_RDONLY)  # gets the lowest free number, which is 0
    if not _is_open(1):
        read_end, write_end = os.pipe()
        os.dup2(write_end, 1)
        for descriptor in {read_end, write_end} - {1}:
            os.close(descriptor)
    if not _is_open(2):
        os.open(os.devnull, os.O_WRONLY)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # whoever prints without us must not fail either


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def is_terminal() -> bool:
    """Tell whether a person reads standard output."""
    return sys.stdout.isatty()


def is_unicode_terminal() -> bool:
    """Tell whether standard output shows every character."""
    return sys.stdout.encoding.lower().replace("-", "") == "utf8"


# Out ------------------------------------------------------------------------------------------------------------


def document(value: Any, *, moved: bool = False) -> None:
    """Write one JSON document and a newline. ``moved`` says that it answers a move, which stands in any case."""
    ascii_only = is_terminal() and not is_unicode_terminal()
    text = json.dumps(value, ensure_ascii=ascii_only)
    text = _OBEYED_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    _write(text.encode() + b"\n", text, moved)


def text(shown: str, *, moved: bool = False) -> None:
    """Write text for people; what the terminal's encoding lacks is replaced."""
    encoding = sys.stdout.encoding if is_terminal() else "utf-8"
    _write(shown.encode(encoding, "replace"), shown.strip(), moved)


def _write(content: bytes, answer: str, moved: bool) -> None:
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        raise ReaderGone from None
    except OSError as error:
        _silence(sys.stdout)
        raise AnswerLost(error.strerror or type(error).__name__, answer, moved) from None


def note(line: str) -> None:
    """Write one line to standard error, without the secrets of any URL in it."""
    notes([line])


def notes(lines: Iterable[str]) -> None:
    """Write lines to standard error, without the secrets of any URL in them."""
    shown = "".join(visible(line) + "\n" for line in lines)
    shown = _SECRET_OPTION.sub(r"\1***", _USER_INFO.sub("://***@", shown))
    with suppress(OSError):
        sys.stderr.buffer.write(shown.encode(sys.stderr.encoding, "backslashreplace"))
        sys.stderr.buffer.flush()


def visible(stored: str) -> str:
    """Show text on one line, with escapes for every character that a terminal would obey."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), stored)


def _silence(stream: IO[str]) -> None:
    """Let what is left in a stream's buffer, and all that follows, go nowhere."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def finish() -> None:
    """Write out what is left in the buffers, or drop it, so that the interpreter's end finds nothing to report."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _silence(stream)


def reader_gone(seconds: float = 0.0) -> bool:
    """Wait that long, but no longer than somebody reads standard output; tell whether the reader has left."""
    if not hasattr(select, "poll"):
        time.sleep(seconds)
        return False
    watched = select.poll()
    watched.register(sys.stdout.fileno(), 0)  # errors and hang-ups are reported unasked
    return bool(watched.poll(seconds * 1000))


# In -------------------------------------------------------------------------------------------------------------


def read_input(name: str, most: int, encoding: str = "utf-8") -> str:
    """Read an argument from standard input, byte for byte; refuse what is too long or is no UTF-8."""
    if sys.stdin is None:
        raise InvalidArgument(f"{name} cannot be read, for standard input is closed")
    try:
        content = sys.stdin.buffer.read(most + 1)
    except OSError as error:
        raise InvalidArgument(f"{name} cannot be read from standard input: {error.strerror}") from None
    if len(content) > most:
        raise InvalidArgument(f"{name} is larger than {most:,} UTF-8 bytes")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} is no UTF-8 text: byte {error.start + 1} of standard input") from None
