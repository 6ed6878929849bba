"""Every delivery ends in the right standing, and the receiver's log and the history agree."""

from __future__ import annotations

import pytest

from tests.conftest import REAL
from tests.pump.queue import Sender, pump, pumping
from tests.pump.sink import Behaviour, Sink, after, endless, nobody, raw, silence, status
from tests.queue import Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

OK = b"HTTP/1.1 200 OK\r\n"
GIB = 1 << 30
BEHAVIOURS: dict[str, tuple[list[Behaviour | int], str, int]] = {
    # path: behaviours in turn, how the job ends, and after how many attempts
    "/200": ([200], "http:200", 1),
    "/202": ([202], "http:202", 1),
    "/301": ([301], "http:301", 1),
    "/400": ([400], "http:400", 1),
    "/408": ([408, 200], "http:200", 2),
    "/409": ([409], "http:409", 1),
    "/410": ([410], "http:410", 1),
    "/425": ([425, 200], "http:200", 2),
    "/429": ([429, status(429, ["Retry-After: 0"]), status(429, ["Retry-After: -5"]), 200], "http:200", 4),
    "/500": ([500], "no attempt left: http:500", 5),
    "/500-then-400": ([500, 500, 400], "http:400", 3),
    "/503": ([status(503, ["Retry-After: soon"]), 204], "http:204", 2),
    "/silence": ([silence, silence, 200], "http:200", 3),
    "/dribble": ([endless(OK, b"a", 0.1), 200], "http:200", 2),
    "/endless": ([endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 9999)], "http:200", 1),
    "/gigabyte": ([endless(OK + b"Content-Length: %d\r\n\r\n" % GIB, bytes(65_536), 0, GIB)], "http:200", 1),
    "/redirect": ([status(307, ["Location: http://127.0.0.1:1/"])], "http:307", 1),
    "/slow": ([after(0.3, 200)], "http:200", 1),
    "/cut": ([raw(b"HTTP/1.1 20"), raw(b""), 200], "http:200", 3),
    "/garbage": ([raw(b"\xff" * 500), 200], "http:200", 2),
    "/unprintable": ([status(400, ["X: \x7f"], b"\x00\x1b[31m\xff\r\n" * 999)], "http:400", 1),
    "/1xx": ([endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 99), 200], "http:200", 2),
    "/204-with-body": ([raw(b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nhi")], "http:204", 1),
}


def test_every_delivery_ends_as_its_receiver_deserves_and_the_logs_agree(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        jobs = {path: sender.create(sink.on(path, *turns)) for path, (turns, _, _) in BEHAVIOURS.items()}
        with pumping(queue, pump()):
            ends = {path: sender.ended(job_id) for path, job_id in jobs.items()}
        for path, (_, text, attempts) in BEHAVIOURS.items():
            end, received = ends[path], sink.got(path)
            completed = text in ("http:200", "http:202", "http:204")
            assert (path, end.state) == (path, "completed" if completed else "failed")
            assert (path, end.result_ref if completed else end.reason) == (path, text)
            assert (path, len(received), end.attempts) == (path, attempts, attempts)
            assert [one.job_id for one in received] == [jobs[path]] * attempts
            assert [one.attempt for one in received] == list(range(1, attempts + 1))
            assert [one.fence for one in received] == sender.claims(jobs[path])


@pytest.mark.parametrize(
    "payload, reason",
    [
        ("", "payload: not a JSON document"),
        ('{"uri": "http://u:p@127.0.0.1/"}', "payload: uri may not hold credentials: send them in a header"),
        ('{"uri": "http://169.254.169.254/"}', "refused: the address is not public (link-local)"),
        ('{"uri": "http://[::ffff:10.0.0.1]/"}', "refused: the address is not public (private)"),
    ],
)
def test_what_can_never_be_delivered_fails_at_once(queue: Queue, payload: str, reason: str) -> None:
    sender = Sender(queue)
    with pumping(queue, pump()):
        end = sender.ended(sender.create_raw(payload))
    assert (end.state, end.reason, end.attempts) == ("failed", reason, 1)


def test_nobody_listening_is_tried_five_times(queue: Queue) -> None:
    sender = Sender(queue)
    with nobody() as uri, pumping(queue, pump()):
        end = sender.ended(sender.create(uri))
    assert (end.state, end.reason, end.attempts) == ("failed", "no attempt left: network: no connection", 5)
