"""The program as a whole: its commands, loaded when asked for, and how each ending becomes an exit status."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from .. import __version__
from ..errors import ConfigurationError, EngineError, Refusal
from . import streams
from .settings import Group, Settings, everywhere, own_arguments

DONE, REFUSED, USAGE, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130

# Each command and the module that has it under the same name.
COMMANDS = {
    "call": "call",
    "tools": "catalogue",
    "principal": "registry",
    "quorum": "registry",
    "task": "registry",
    "token": "token",
    "job": "jobs",
    "expire": "jobs",
    "kind": "kinds",
    "work": "work",
    "pump": "pump",
    "serve": "serve",
    "mcp": "mcp",
    "history": "feed",
    "demo": "demo",
}


class Program(Group):
    """The root: every command's module is imported when the command is asked for."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(f"{__package__}.{module}"), cmd_name)
        return command

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Run, then leave the process with the exit status."""
        sys.exit(run(own_arguments() if args is None else list(args)))


shampoo = Program(
    "shampoo",
    params=everywhere(hidden=False),
    # Both spellings of an option are one: --lease-seconds and --lease_seconds.
    context_settings={
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "help_option_names": ["--help", "-h"],
    },
    no_args_is_help=True,
    help="Work a distributed queue on Redis: call its tools, keep its registry, read its history.",
    epilog="Exit status: 0 done, 1 refused, 2 wrong usage or configuration, 3 queue unavailable, 130 interrupted.",
)
click.version_option(__version__, prog_name="shampoo", message="%(prog)s %(version)s")(shampoo)


def run(arguments: list[str]) -> int:
    """Run one line to its end and give its exit status; whatever happens, no traceback reaches the user."""
    settings = Settings()
    with _logged_to_stderr() as defects:
        try:
            if instruction := os.environ.get("_SHAMPOO_COMPLETE"):
                from click.shell_completion import shell_complete

                return shell_complete(shampoo, {}, "shampoo", "_SHAMPOO_COMPLETE", instruction)
            with shampoo.make_context("shampoo", arguments, obj=settings) as context:
                return shampoo.invoke(context) or DONE
        except BaseException as ended:
            return _status(ended, defects)
        finally:
            streams.finish()


def _status(ended: BaseException, defects: list[str]) -> int:
    """Say in one line why a command ended early, and give the exit status."""
    match ended:
        case click.exceptions.Exit():
            return ended.exit_code
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case streams.ReaderGone():
            return DONE
        case streams.AnswerLost(moved=True):
            streams.note(f"warning: {ended}; the answer was {ended.answer}")
            return DONE
        case streams.AnswerLost():
            streams.note(f"output_failed: {ended}")
            return REFUSED
        case click.ClickException():
            shown = io.StringIO()
            ended.show(shown)
            streams.notes(shown.getvalue().splitlines())
            return USAGE
        case Refusal():
            streams.note(": ".join([ended.code, ended.message, *defects]))
            return UNAVAILABLE if ended.code == "unavailable" else REFUSED
        case EngineError():
            streams.note(f"unavailable: {_on_one_line(str(ended))}")
            return UNAVAILABLE
        case ConfigurationError():
            streams.note(f"configuration: {_on_one_line(str(ended))}")
            return USAGE
        case BrokenPipeError() if streams.reader_gone():
            return DONE
        case Exception():
            streams.note(f"internal: internal error: {_defect(ended)}")
            return REFUSED
    raise ended


def _on_one_line(message: str) -> str:
    return " | ".join(line.strip() for line in message.splitlines() if line.strip())


def _defect(error: Exception) -> str:
    """Describe a defect in one line: what and where. Its message may hold anything, a secret too, and is left out."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-3:])
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
    reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return f"{type(error).__name__}{reason} at {', '.join(places)}"


@contextmanager
def _logged_to_stderr() -> Iterator[list[str]]:
    """Show the library's warnings as lines; keep its reports of defects for the one line that names the defect."""
    log, handler = logging.getLogger("shampoo_queue"), _Lines(logging.WARNING)
    log.addHandler(handler)
    try:
        yield handler.defects
    finally:
        log.removeHandler(handler)


class _Lines(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.defects: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = _on_one_line(record.getMessage())
        if record.levelno >= logging.ERROR:
            self.defects.append(line)
        else:
            streams.note(f"warning: {line}")
