"""Keep one embedded server for exactly as long as the process that wanted it lives.

Run as a plain file: ``keeper.py PIPE LOCKS COMMAND...`` where PIPE is the read end of a pipe whose only write end
the starter holds, and LOCKS are the locked descriptors, joined by commas, that the server is to hold. The kernel
closes the starter's end however the starter ends, so an end of file here is the one certain sign of its death.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

PATIENCE = 10.0  # seconds that a server has for an orderly end


def launch(command: list[str], locks: list[int], die_with_parent: bool) -> int:
    """Start the server with the locks in its hands and return its process id."""
    libc = None
    if die_with_parent:
        import ctypes

        libc = ctypes.CDLL(None)
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a Python handler would swallow it between here and exec
        if libc is not None:
            libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: a killed keeper leaves no server either
        if os.getppid() == keeper:  # it may have died before the line above
            for lock in locks:
                os.set_inheritable(lock, True)
            os.execv(command[0], command)
    except BaseException as error:
        os.write(2, f"{command[0]}: {error}\n".encode(errors="replace"))
    os._exit(127)


def ended(server: int) -> bool:
    """Tell whether the server is gone, and reap it."""
    return os.waitpid(server, os.WNOHANG)[0] == server


def stop(server: int, wake: int) -> None:
    """End the server, in order if it can, by force if it must."""
    os.kill(server, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while not ended(server):
        left = deadline - time.monotonic()
        if left <= 0:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            return
        if select.select([wake], [], [], left)[0]:
            os.read(wake, 64)


def main(pipe: int, locks: list[int], command: list[str]) -> None:
    """Start the server, then wait for its end or for the starter's."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # whatever the starter blocked, the server must hear SIGTERM
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the wake-up descriptor tells which one came
    server = launch(command, locks, sys.platform == "linux")
    os.ftruncate(locks[0], 0)
    os.pwrite(locks[0], f"{server}\n".encode(), 0)
    for lock in locks:
        os.close(lock)  # from here on only the server holds them
    while not ended(server):
        ready = select.select([pipe, wake], [], [])[0]
        if pipe in ready or (wake in ready and signal.SIGTERM in os.read(wake, 64)):
            stop(server, wake)
            return


if __name__ == "__main__":
    os.umask(0o077)
    main(int(sys.argv[1]), [int(lock) for lock in sys.argv[2].split(",")], sys.argv[3:])
