"""Talk to the service manager: systemd's notification protocol, or nothing where there is no such socket."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> bool:
    """Send a state such as ``READY=1`` to the socket in ``NOTIFY_SOCKET``; tell whether it was sent.

    A name that begins with ``@`` is in the abstract namespace. Never raises, never waits.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")) or not hasattr(socket, "AF_UNIX"):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
        speaker.setblocking(False)
        speaker.sendto(state.encode(), address)
        return True
    return False


def watchdog_seconds() -> float | None:
    """Give the time between two signs of life: half of what the service manager waits; None when it does not wait."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not os.environ.get("NOTIFY_SOCKET") or not microseconds.isdecimal() or int(microseconds) <= 0:
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(microseconds) / 2_000_000
