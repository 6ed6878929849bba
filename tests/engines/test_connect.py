"""Reaching a server: what cannot work is one clear line at the start, and no secret is ever in it."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from shampoo_queue import AsyncShampoo, ConfigurationError, EngineError, Shampoo, errors
from tests.servers import HOST, Cluster, Server, free_port, redis, valkey, wait_until

SECRET = "s3cr&t/m@rk:é+%?#"
IN_URL = quote(SECRET, safe="")
IMPATIENT = "socket_timeout=0.3&socket_connect_timeout=0.3"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def reach(target: Any, flavour: str = "sync", **options: Any) -> list[str]:
    """Open a queue, register a principal, create and claim a job, close; give the warnings of the start."""
    options.setdefault("profile", "p")
    if flavour == "sync":
        with Shampoo.connect(target, **options) as shampoo:
            shampoo.registry.add_principal("c", conductor=True, grants=["p"])
            client = shampoo.client("c")
            assert client.job_create(kind="k", project="p").job_id == client.job_claim().job_id
            return shampoo.warnings

    async def story() -> list[str]:
        async with AsyncShampoo.connect(target, **options) as shampoo:
            await shampoo.registry.add_principal("c", conductor=True, grants=["p"])
            client = shampoo.client("c")
            assert (await client.job_create(kind="k", project="p")).job_id == (await client.job_claim()).job_id
            return shampoo.warnings

    return asyncio.run(story())


def spellings(secret: str) -> set[str]:
    """A secret as written, percent-encoded in the usual ways, and in base64 alone and behind a user's name."""
    raw = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
    coded = {base64.b64encode(text.encode()).decode().rstrip("=") for text in (secret, f"user:{secret}", f":{secret}")}
    return raw | coded


class Discretion:
    """Collects whatever a failed start says anywhere, and holds it against a secret."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self._caplog, self._capfd = caplog, capfd
        caplog.set_level(logging.DEBUG)

    def said(self, error: BaseException | None = None) -> str:
        parts = [self._caplog.text, *self._capfd.readouterr()]
        while error is not None:
            parts += [str(error), repr(error), repr(error.args), *traceback.format_exception(error)]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n".join(parts)

    def check(self, error: BaseException | None = None, *more: object, secret: str = SECRET) -> None:
        said = "\n".join([self.said(error), *map(repr, more)])
        found = [spelled for spelled in spellings(secret) if spelled in said]
        assert not found, said


@pytest.fixture
def discretion(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Discretion:
    return Discretion(caplog, capfd)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a password, on TCP and on a unix socket."""
    folder = tmp_path_factory.mktemp("guarded")
    binary = redis() or valkey()
    with Server(binary, folder, "--requirepass", "right", "--unixsocket", str(folder / "s")) as server:
        yield server


# Passwords ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["", "user"])
@pytest.mark.parametrize("kind", ["redis", "unix", "cluster", "query"])
def test_a_wrong_password_is_one_clear_line_without_it(
    guarded: Server, flavour: str, kind: str, user: str, discretion: Discretion
) -> None:
    """Field report 50: neither the message, its causes, the logs nor any repr hold the password in any spelling."""
    address = f"{HOST}:{guarded.port}"
    url = {
        "redis": f"redis://{user}:{IN_URL}@{address}/0",
        "unix": f"unix://{user}:{IN_URL}@{guarded.folder.parent}/s",
        "cluster": f"redis+cluster://{user}:{IN_URL}@{address}",
        "query": f"redis://{address}/0?username={user or 'default'}&password={IN_URL}",
    }[kind]
    with pytest.raises(EngineError, match="refuses the user or password") as failed:
        reach(url, flavour)
    assert "\n" not in str(failed.value)
    discretion.check(failed.value)


def test_a_missing_password_is_one_clear_line(guarded: Server, flavour: str) -> None:
    with pytest.raises(EngineError, match=r"refuses the user or password.*correct it in the URL"):
        reach(f"redis://{HOST}:{guarded.port}/0", flavour)


def test_no_secret_is_shown_while_everything_works_or_fails_later(
    tmp_path: Path, flavour: str, discretion: Discretion
) -> None:
    """Field report 50: a working queue shows its URL and itself without the password, also when its server dies."""
    with Server(redis() or valkey(), tmp_path, "--requirepass", SECRET) as server:
        reach(server.url, flavour)
        shampoo = Shampoo.connect(server.url, profile="p", retry_seconds=0.2)
        shown = [shampoo, shampoo.url, shampoo.warnings, shampoo.client("c"), shampoo.registry, shampoo.ops]
        shown += [shampoo._route, shampoo._wire]
        assert shampoo.url == f"redis://***@{HOST}:{server.port}/0"
        server.kill()
        with pytest.raises(errors.Unavailable) as failed:
            shampoo.client("c").job_claim()
        shampoo.close()
    discretion.check(failed.value, *shown)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{IN_URL}@{HOST}:PORT/0",
        f"rediss://:{IN_URL}@{HOST}:PORT/0",
        f"redis://{HOST}:PORT/0?password={IN_URL}",
        f"rediss://{HOST}:PORT/0?ssl_password={IN_URL}",
        f"redis+sentinel://user:{IN_URL}@{HOST}:PORT/service/0",
        f"rediss+sentinel://{HOST}:PORT/service?sentinel_password={IN_URL}&password=x",
        f"redis+cluster://:{IN_URL}@{HOST}:PORT",
        f"rediss+cluster://user:{IN_URL}@{HOST}:PORT,{HOST}:PORT",
        f"unix://:{IN_URL}@/nowhere/socket",
    ],
)
def test_an_unreachable_server_is_one_clear_line_with_its_address_and_without_secrets(
    url: str, flavour: str, discretion: Discretion
) -> None:
    """Field report 50: the host and the port are shown, for they help; the secret is not, for it does not."""
    port = str(free_port())
    with pytest.raises(EngineError, match=r"^cannot reach ") as failed:
        reach(url.replace("PORT", port), flavour)
    line = str(failed.value)
    assert ("/nowhere/socket" if url.startswith("unix") else port) in line
    assert "\n" not in line
    assert "<" not in line, "the innards of a client are no help"
    assert re.search("refused|[Cc]onnect call failed|No such file", line), "the reason is the help"
    assert len(line) < 300
    discretion.check(failed.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret/m4rk@127.0.0.1:1/0",
        "redis://:s3cret?m4rk@127.0.0.1:1/0",
        "redis://:s3cret#m4rk@127.0.0.1:1/0",
        "redis://:m4rk@s3cret/@127.0.0.1:1/0",
        "redis+sentinel://:s3cret/m4rk@127.0.0.1:1/service",
        "redis+sentinel://:s3cret?m4rk@127.0.0.1:1/service",
        "redis+cluster://:s3cret/m4rk@127.0.0.1:1",
        "redis+cluster://:s3cret?m4rk@127.0.0.1:1",
        "redis+cluster://:m4rk@s3cret/x@127.0.0.1:1",
        "redis+cluster://:s3cret#m4rk@127.0.0.1:1",
    ],
)
def test_a_password_that_was_not_encoded_is_refused_and_no_part_of_it_shown(url: str, discretion: Discretion) -> None:
    """Field report 50: a slash, question mark or hash in it splits the URL elsewhere; that must not spill it."""
    with pytest.raises(ConfigurationError) as failed:
        reach(url)
    for part in ("s3cret", "m4rk"):
        discretion.check(failed.value, secret=part)


# URLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("", "nothing", "localhost:6379", "http://h", "REDIS//h", "redis:h", "://", "sqlite:///x"),
        *("redis://h:port/0", "redis://h:99999/0", "redis://[::1", "redis://h/0?socket_timeout=soon"),
        *("redis://127.0.0.1:1/0?no_such_option=1", "rediss://127.0.0.1:1/0?no_such_option=1", "redis://h/zero"),
        *("redis+sentinel://h", "redis+sentinel://h/", "redis+sentinel://h/s/x", "redis+sentinel://h:p/s"),
        *("redis+sentinel:///s", "redis+sentinel://[::1/s", "redis+sentinel://h/s?x", "redis+sentinel://h,,i/s"),
        *("redis+sentinel://127.0.0.1:1/s?no_such_option=1", "redis+sentinel://127.0.0.1:99999/s"),
        *("redis+cluster://", "redis+cluster://h:p", "redis+cluster://::1:6379", "redis+cluster://h?x"),
        *("redis+cluster://127.0.0.1:1?no_such_option=1", "redis+cluster://127.0.0.1:99999", "redis+cluster://[::1"),
        *("unix://", "redis+cluster://h?protocol=x", "redis+unix:///x"),
    ],
)
def test_a_url_that_cannot_be_right_is_a_configuration_error(url: str) -> None:
    """Whatever is wrong with it, what is raised is one line of ours, before or instead of any attempt to connect."""
    with pytest.raises(ConfigurationError) as failed:
        reach(url)
    assert "\n" not in str(failed.value)
    assert type(failed.value) is ConfigurationError, "a mistake in the URL is not the server's fault"


def test_an_unknown_scheme_is_answered_with_every_scheme_there_is() -> None:
    with pytest.raises(ConfigurationError) as failed:
        reach("amqp://h")
    known = {"embedded", "memory", "redis", "rediss", "unix"}
    known |= {"redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}
    assert known <= set(re.split(r"[ ,:/;']+", str(failed.value)))


@pytest.mark.parametrize(
    "profile",
    ["", "A", "ä", "-a", ".a", "_a", "a b", "a/b", "a:b", "{a}", "a}b", "a" * 65, "a\n", "*", None, 7, b"a", "\ud800"],
)
def test_a_profile_of_another_form_is_refused_before_anything_is_reached(profile: Any) -> None:
    for kind in (Shampoo, AsyncShampoo):
        with pytest.raises(ConfigurationError, match="profile") as failed:
            kind.connect("redis://127.0.0.1:1", profile=profile)
        assert str(failed.value).isprintable()


@pytest.mark.parametrize("profile", ["a", "0", "a" * 64, "a.b_c-d", "7-7"])
def test_a_profile_of_the_right_form_is_taken(profile: str) -> None:
    assert reach("memory://profiles", profile=profile) == []


@pytest.mark.parametrize("url", ["redis://nowhere.invalid:6379/0", "redis+cluster://nowhere.invalid:6379"])
def test_a_host_that_has_no_address_is_named(url: str, flavour: str) -> None:
    with pytest.raises(EngineError, match=r"^cannot reach .*nowhere\.invalid"):
        reach(url, flavour)


def test_an_operator_without_a_name_of_its_own_is_refused() -> None:
    for name in ("x" * 129, "a\nb", 7, "\ud800"):
        with pytest.raises(errors.InvalidArgument, match="operator"):
            Shampoo.connect("memory://operators", operator=name)  # type: ignore[arg-type]


def test_the_in_memory_engine_without_its_package_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['fakeredis'] = None\n"
        "from shampoo_queue import AsyncShampoo, ConfigurationError, Shampoo\n"
        "for kind in Shampoo, AsyncShampoo:\n"
        "    try: kind.connect('memory://x')\n"
        "    except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "memory:// needs fakeredis: pip install 'shampoo_queue[memory]'\n" * 2


# What the server is ---------------------------------------------------------------------------------------------


class Pretender:
    """A server that answers INFO and CONFIG GET with what a test says, and everything else with OK."""

    def __init__(self, info: dict[str, str], config: dict[str, str] | None = None) -> None:
        self._info = "".join(f"{name}:{value}\r\n" for name, value in info.items())
        self._config = config
        self.conversations = 0
        self._listener = socket.create_server((HOST, 0))
        self.url = f"redis://{HOST}:{self._listener.getsockname()[1]}/0"
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._converse, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _converse(self, connection: socket.socket) -> None:
        self.conversations += 1
        with connection, connection.makefile("rb") as lines:
            while header := lines.readline():
                words = []
                for _ in range(int(header[1:])):
                    size = int(lines.readline()[1:])
                    words.append(lines.read(size + 2)[:-2].upper())
                connection.sendall(self._answer(words).encode())
        self.conversations -= 1

    def _answer(self, words: list[bytes]) -> str:
        if words[0] == b"INFO":
            return f"${len(self._info)}\r\n{self._info}\r\n"
        if words[0] == b"CONFIG":
            if self._config is None:
                return "-NOPERM this user has no permissions to run the 'config|get' command\r\n"
            flat = [part for pair in self._config.items() for part in pair]
            return f"*{len(flat)}\r\n" + "".join(f"${len(part)}\r\n{part}\r\n" for part in flat)
        return "+OK\r\n"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


SAFE = {"maxmemory-policy": "noeviction", "save": ""}


@contextmanager
def pretended(info: dict[str, str], config: dict[str, str] | None = SAFE) -> Iterator[str]:
    server = Pretender({"role": "master", "aof_enabled": "1", **info}, config)
    try:
        yield server.url
    finally:
        server.close()


def warnings_of(url: str, flavour: str) -> list[str]:
    """Start, and give the warnings, without calling a tool."""
    if flavour == "sync":
        with Shampoo.connect(url, profile="p") as shampoo:
            return shampoo.warnings

    async def story() -> list[str]:
        async with AsyncShampoo.connect(url, profile="p") as shampoo:
            return shampoo.warnings

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({"redis_version": "6.2.14"}, "Redis 6.2.14"),
        ({"redis_version": "5.0"}, "Redis 5.0"),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "7.2.8"}, "Valkey 7.2.8"),
        ({}, "Redis 0"),
    ],
)
def test_a_server_that_is_too_old_is_named_with_what_is_needed(info: dict[str, str], found: str, flavour: str) -> None:
    """Field report 14: each flavour is judged by its own version, not by the one it pins for compatibility."""
    with pretended(info) as url, pytest.raises(EngineError, match=f"{found}, too old.*Redis 7.0 or Valkey 8"):
        warnings_of(url, flavour)


def test_a_start_that_failed_leaves_no_connection_open() -> None:
    """Whoever tries again and again must not use up the server's connections."""
    server = Pretender({"redis_version": "6.2"})

    async def story() -> None:
        shampoo = AsyncShampoo.connect(server.url, profile="p")
        for _ in range(3):
            with pytest.raises(EngineError, match="too old"):
                await shampoo.client("c").job_claim()
        await asyncio.to_thread(wait_until, lambda: server.conversations == 0, "asyncio lets go", 2)

    with pytest.raises(EngineError, match="too old"):
        Shampoo.connect(server.url, profile="p")
    wait_until(lambda: server.conversations == 0, "the connection is closed", 2)
    asyncio.run(story())
    server.close()


@pytest.mark.parametrize(
    "info",
    [
        {"redis_version": "7.0.0"},
        {"redis_version": "7.4.1"},
        {"redis_version": "10.0.0"},
        {"redis_version": "8.2.1-rc1"},
        {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.0.0"},
        {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.1.0-rc2"},
        {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "10.0.1"},
    ],
)
def test_a_server_that_is_new_enough_is_taken(info: dict[str, str], flavour: str) -> None:
    """Field report 14: two digits of a version are more than one."""
    with pretended(info) as url:
        assert warnings_of(url, flavour) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_evicts_is_warned_of_once_in_the_log_and_kept_as_a_warning(
    policy: str, flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Field report 5: jobs that vanish under pressure are no queue."""
    with pretended({"redis_version": "7.0.15"}, {**SAFE, "maxmemory-policy": policy}) as url:
        (warning,) = warnings_of(url, flavour)
    assert f"maxmemory-policy {policy}" in warning
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [warning]


@pytest.mark.parametrize(
    ("info", "save", "warned"),
    [
        ({"aof_enabled": "0"}, "", True),
        ({"aof_enabled": "0"}, "3600 1 300 100", False),
        ({"aof_enabled": "1"}, "", False),
        ({"aof_enabled": "1"}, "3600 1", False),
    ],
)
def test_a_server_that_keeps_nothing_on_disk_is_warned_of(
    info: dict[str, str], save: str, warned: bool, flavour: str
) -> None:
    """Field report 23: without a log and without save points, a restart loses every job."""
    with pretended({"redis_version": "7.0.15", **info}, {**SAFE, "save": save}) as url:
        warnings = warnings_of(url, flavour)
    assert [("keeps nothing on disk" in warning) for warning in warnings] == [True] * warned


@pytest.mark.parametrize("role", ["slave", "replica"])
def test_a_replica_is_warned_of(role: str, flavour: str) -> None:
    with pretended({"redis_version": "7.0.15", "role": role}) as url:
        (warning,) = warnings_of(url, flavour)
    assert "is a replica and takes no writes" in warning


def test_a_server_that_keeps_its_settings_to_itself_is_no_error_and_no_warning(flavour: str) -> None:
    with pretended({"redis_version": "7.0.15", "aof_enabled": "0"}, None) as url:
        assert warnings_of(url, flavour) == []


def test_a_real_server_is_judged_as_it_is_set(tmp_path: Path, flavour: str) -> None:
    """Redis and Valkey both, under both protocols."""
    for n, binary in enumerate(filter(None, (redis(), valkey()))):
        with Server(binary, tmp_path / str(n), "--maxmemory-policy", "allkeys-lfu") as server:
            for options in ("", "?protocol=3&decode_responses=true"):
                warnings = reach(server.url + options, flavour)
                assert ["allkeys-lfu" in warnings[0], "nothing on disk" in warnings[1]] == [True, True]
            server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
            server.call("CONFIG", "SET", "save", "3600 1")
            assert reach(server.url, flavour) == []


def test_something_that_is_no_redis_is_refused_in_time(flavour: str) -> None:
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(5)

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(EngineError, match=r"^cannot reach"):
            warnings_of(f"redis://{HOST}:{listener.getsockname()[1]}/0", flavour)
        thread.join()


def test_a_server_that_stays_silent_is_given_up_after_the_sockets_patience(flavour: str) -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(EngineError, match=f"^cannot reach .*{port}"):
            warnings_of(f"redis://{HOST}:{port}/0?socket_timeout=0.2", flavour)


# Users with few rights ------------------------------------------------------------------------------------------

MOVES = ("+evalsha", "+script|load", "+time", "+@read", "+@write", "-@dangerous", "+info")


@pytest.mark.parametrize("binary", ["redis", "valkey"])
def test_a_user_who_may_touch_one_profiles_keys_and_no_settings_works(
    tmp_path: Path, binary: str, flavour: str
) -> None:
    """CONFIG GET is refused to such a user, which is no error; neither is the profile beside this one."""
    path = redis() if binary == "redis" else valkey()
    if path is None:
        pytest.skip("there is no redis-server on PATH: apt-get install redis-server")
    with Server(path, tmp_path) as server:
        server.call("ACL", "SETUSER", "few", "on", ">pw", "~shampoo:{p}:*", *MOVES)
        url = server.url.replace("redis://", "redis://few:pw@")
        assert reach(url, flavour) == []
        with pytest.raises(errors.Unavailable, match="lacks a permission"):
            reach(url, flavour, profile="q")
        assert server.call("KEYS", "shampoo:{q}:*") == []


# TLS ------------------------------------------------------------------------------------------------------------


NEW_KEY = ("-newkey", "rsa:2048", "-nodes")


class Authority:
    """A certificate authority of the test, and certificates it signs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"
        )
        self.issue("good", f"IP:{HOST}")
        self.issue("elsewhere", "DNS:elsewhere.example")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def issue(self, name: str, address: str) -> None:
        (self.folder / "ext").write_text(f"subjectAltName={address}")
        request = (
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            "csr",
            "-subj",
            f"/CN={name}",
        )
        self._openssl(*request)
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext")
        self._openssl("x509", "-req", "-in", "csr", "-out", f"{name}.pem", *signing)

    def options(self, name: str, port: int, *more: str) -> tuple[str, ...]:
        """A server's options for TLS with one of the certificates."""
        files = [("cert", f"{name}.pem"), ("key", f"{name}.key"), ("ca-cert", "ca.pem")]
        spelled = [word for what, file in files for word in (f"--tls-{what}-file", str(self.folder / file))]
        return ("--tls-port", str(port), *spelled, "--tls-auth-clients", "no", *more)

    @property
    def trusted(self) -> str:
        return f"ssl_ca_certs={quote(str(self.folder / 'ca.pem'))}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if redis() is None:
        pytest.skip("there is no redis-server on PATH, and the packaged Valkey is built without TLS")
    return Authority(tmp_path_factory.mktemp("authority"))


class Secure:
    """A server that speaks TLS on a port of its own."""

    def __init__(self, authority: Authority, folder: Path, certificate: str = "good", *options: str) -> None:
        self.port = free_port()
        self.server = Server(str(redis()), folder, *authority.options(certificate, self.port, *options))
        self.server.start()


@pytest.fixture(scope="module")
def secure(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    started = Secure(authority, tmp_path_factory.mktemp("secure"))
    yield started
    started.server.stop()


def test_tls_works_with_the_authority_named(authority: Authority, secure: Secure, flavour: str) -> None:
    """Field report 55: the documented way in."""
    assert len(reach(f"rediss://{HOST}:{secure.port}/0?{authority.trusted}", flavour)) == 1


def test_a_certificate_of_an_unknown_authority_is_refused_by_default(secure: Secure, flavour: str) -> None:
    """Field report 55: verification is on unless it is turned off by name."""
    with pytest.raises(EngineError, match=r"(?i)^cannot reach .*certificate verify failed"):
        reach(f"rediss://{HOST}:{secure.port}/0", flavour)
    assert len(reach(f"rediss://{HOST}:{secure.port}/0?ssl_cert_reqs=none&ssl_check_hostname=false", flavour)) == 1


def test_a_certificate_of_another_host_is_refused(authority: Authority, tmp_path: Path, flavour: str) -> None:
    """Field report 55: signed by the right authority, but for somebody else."""
    other = Secure(authority, tmp_path, "elsewhere")
    try:
        with pytest.raises(EngineError, match=f"(?i)^cannot reach .*{HOST}.*mismatch|not valid for"):
            reach(f"rediss://{HOST}:{other.port}/0?{authority.trusted}", flavour)
    finally:
        other.server.stop()


def test_an_authority_whose_file_is_missing_is_a_clear_line(secure: Secure, flavour: str) -> None:
    """Field report 55: the file that could not be read is named."""
    with pytest.raises(EngineError, match=r"/no/such/ca.pem"):
        reach(f"rediss://{HOST}:{secure.port}/0?ssl_ca_certs=/no/such/ca.pem", flavour)


def test_tls_and_plain_text_never_fall_back_to_each_other(secure: Secure, authority: Authority, flavour: str) -> None:
    """Field report 55: each port takes its own kind of link, and the other kind is refused."""
    with pytest.raises(EngineError, match=r"^cannot reach"):
        reach(f"redis://{HOST}:{secure.port}/0?{IMPATIENT}", flavour)
    with pytest.raises(EngineError, match=r"^cannot reach"):
        reach(f"rediss://{HOST}:{secure.server.port}/0?{authority.trusted}&{IMPATIENT}", flavour)


def test_a_client_certificate_is_presented_when_the_server_asks_for_one(
    authority: Authority, tmp_path: Path, flavour: str
) -> None:
    """Field report 55: with it the server serves, without it the start says so."""
    strict = Secure(authority, tmp_path, "good", "--tls-auth-clients", "yes")
    files = f"ssl_certfile={authority.folder}/elsewhere.pem&ssl_keyfile={authority.folder}/elsewhere.key"
    try:
        assert reach(f"rediss://{HOST}:{strict.port}/0?{authority.trusted}&{files}", flavour)
        with pytest.raises(EngineError, match=r"^cannot reach"):
            reach(f"rediss://{HOST}:{strict.port}/0?{authority.trusted}", flavour)
    finally:
        strict.server.stop()


# Sentinel and cluster -------------------------------------------------------------------------------------------


class Watcher(Server):
    """One sentinel."""

    defaults = ()
    mode = ("--sentinel",)


class Watched:
    """A primary and one sentinel, each with its own password, with TLS on both links or on none."""

    service = "shampoo"

    def __init__(
        self, folder: Path, primary: str | None, sentinel: str | None, authority: Authority | None = None
    ) -> None:
        binary = str(redis() or valkey())
        ports = [free_port(), free_port()] if authority else []
        secure = (
            [authority.options("good", port, "--tls-replication", "yes") for port in ports] if authority else [(), ()]
        )
        secret = ("--requirepass", primary) if primary else ()
        self.primary = Server(binary, folder, *secret, *secure[0])
        self.primary.start()
        self.primary_port = ports[0] if authority else self.primary.port
        watch: tuple[str, ...] = ("--sentinel", "monitor", self.service, HOST, str(self.primary_port), "1")
        watch += ("--sentinel", "auth-pass", self.service, primary) if primary else ()
        asked = ("--requirepass", sentinel) if sentinel else ()
        self.sentinel = Watcher(binary, folder, *asked, *secure[1], *watch)
        self.sentinel.start()
        self.port = ports[1] if authority else self.sentinel.port
        wait_until(lambda: self._knows(), "the sentinel sees the primary")

    def _knows(self) -> bool:
        master = self.sentinel.call("INFO", "sentinel").get("master0", {})
        return bool(master.get("status") == "ok" and master.get("name") == self.service)

    def stop(self) -> None:
        self.sentinel.stop()
        self.primary.stop()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("primary", "sentinel"),
    [(None, None), ("same", "same"), ("of the data", "of the watch"), ("of the data", None)],
    ids=["none", "same", "different", "data only"],
)
def test_passwords_and_tls_reach_the_sentinels_and_the_primary(
    tmp_path: Path, request: pytest.FixtureRequest, tls: bool, primary: str | None, sentinel: str | None
) -> None:
    """Field report 55: whichever link asks for whichever secret, the documented options connect."""
    authority: Authority | None = request.getfixturevalue("authority") if tls else None
    watched = Watched(tmp_path, primary, sentinel, authority)
    scheme, trusted = ("rediss", authority.trusted) if authority else ("redis", "")
    credentials = f":{quote(primary)}@" if primary else ""
    own = "" if sentinel == primary else f"&sentinel_password={quote(sentinel or '')}"
    url = f"{scheme}+sentinel://{credentials}{HOST}:{watched.port}/{watched.service}/0?{trusted}{own}".replace(
        "?&", "?"
    )
    try:
        for flavour in ("sync", "async"):
            assert len(reach(url.rstrip("?"), flavour)) == 1
    finally:
        watched.stop()


def test_a_wrong_password_of_the_sentinels_or_of_the_primary_is_one_clear_line(
    tmp_path: Path, flavour: str, discretion: Discretion
) -> None:
    """Field report 50 and 55: it is said which link refuses, and none of the secrets is shown."""
    watched = Watched(tmp_path, "right", "watch")
    address = f"{HOST}:{watched.port}/{watched.service}"
    try:
        for url in (
            f"redis+sentinel://:{IN_URL}@{address}?sentinel_password=watch",
            f"redis+sentinel://:right@{address}?sentinel_password={IN_URL}",
            f"redis+sentinel://:{IN_URL}@{address}",
        ):
            with pytest.raises(EngineError, match="refuses the user or password") as failed:
                reach(url, flavour)
            assert "\n" not in str(failed.value)
            discretion.check(failed.value)
    finally:
        watched.stop()


def test_a_service_that_the_sentinels_do_not_know_is_named(tmp_path: Path, flavour: str) -> None:
    watched = Watched(tmp_path, None, None)
    try:
        with pytest.raises(EngineError, match=r"^cannot reach .*another"):
            reach(f"redis+sentinel://{HOST}:{watched.port}/another", flavour)
    finally:
        watched.stop()


def test_sentinels_over_tls_whose_certificates_cannot_be_verified_are_refused(
    tmp_path: Path, authority: Authority, flavour: str
) -> None:
    """Field report 55: no fall-back to plain text on the sentinels' link either."""
    watched = Watched(tmp_path, None, None, authority)
    try:
        with pytest.raises(EngineError, match=r"^cannot reach .*certificate verify failed"):
            reach(f"rediss+sentinel://{HOST}:{watched.port}/{watched.service}", flavour)
    finally:
        watched.stop()


def test_a_cluster_with_a_password_works_from_any_node_and_refuses_a_wrong_one(
    tmp_path: Path, discretion: Discretion
) -> None:
    """Field report 55: the password reaches every node, the one that was named and the one that holds the profile."""
    with Cluster(valkey(), tmp_path, "--requirepass", "right one", "--masterauth", "right one") as cluster:
        for flavour in ("sync", "async"):
            for node in cluster.nodes:
                reach(f"redis+cluster://:{quote('right one')}@{HOST}:{node.port}", flavour)
            with pytest.raises(EngineError, match="refuses the user or password") as failed:
                reach(f"redis+cluster://:{IN_URL}@{HOST}:{cluster.nodes[1].port}", flavour)
            discretion.check(failed.value)
        cluster.nodes[0].stop()
        named = ",".join(f"{HOST}:{node.port}" for node in cluster.nodes)
        holder = next(p for p in "abcdefghij" if _slot(p) > 6000)
        reach(f"redis+cluster://:{quote('right one')}@{named}", "sync", profile=holder)


def _slot(profile: str) -> int:
    from redis.cluster import key_slot  # type: ignore[attr-defined]

    return int(key_slot(f"{{{profile}}}".encode()))


def test_a_cluster_over_tls_works(tmp_path: Path, authority: Authority) -> None:
    """Field report 55: one node that holds every slot is cluster enough for the link."""
    port = free_port()
    options = authority.options("good", port, "--cluster-enabled", "yes", "--tls-cluster", "yes")
    with Server(str(redis()), tmp_path, *options) as node:
        node.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: "cluster_state:ok" in str(node.call("CLUSTER", "INFO")), "the node serves")
        for flavour in ("sync", "async"):
            reach(f"rediss+cluster://{HOST}:{port}?{authority.trusted}", flavour)
            with pytest.raises(EngineError, match="certificate verify failed"):
                reach(f"rediss+cluster://{HOST}:{port}", flavour)
