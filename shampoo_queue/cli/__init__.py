"""The command line, ``shampoo``: a command for each tool, and the operators' commands beside them."""

from __future__ import annotations


def main() -> int:
    """Run the program on this process's arguments and give its exit status."""
    try:
        # Here and not above, so that an interrupt while the modules load ends as quietly as any other.
        from . import streams
        from .program import run
        from .settings import own_arguments

        streams.prepare()
        return run(own_arguments())
    except KeyboardInterrupt:
        return 130
