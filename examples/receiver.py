"""Receive deliveries: believe signed ones only, and refuse a sender whose job has gone to a newer one.

    SECRET=whsec_… python -m examples.receiver 8080

A job may be delivered more than once, by the same sender or its successor: `Webhook-Id` tells that it is the same.
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from standardwebhooks import Webhook, WebhookVerificationError

MOST_BYTES = 2_000_000
newest: dict[str, int] = {}  # the highest fence seen of each job; keep it where your data is
one_at_a_time = Lock()


class Receiver(BaseHTTPRequestHandler):
    timeout = 10  # seconds in which a client may be silent

    def do_POST(self) -> None:
        told = self.headers["Content-Length"] or ""
        if not told.isdecimal():
            return self.answer(411)
        if (length := int(told[:20])) > MOST_BYTES:
            return self.answer(413)
        body = self.rfile.read(length)
        try:
            Webhook(os.environ["SECRET"]).verify(body, dict(self.headers), json_parse=False)
            job_id, fence = self.headers["Webhook-Id"], int(self.headers["Shampoo-Fence"])
        except (WebhookVerificationError, TypeError, ValueError):
            return self.answer(401)
        with one_at_a_time:
            if fence < newest.get(job_id, 0):
                return self.answer(409)
            newest[job_id] = fence
            print(job_id, body.decode(), flush=True)  # here goes your own work, before the answer
        return self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()


if __name__ == "__main__":
    if len(sys.argv) != 2 or "SECRET" not in os.environ:
        sys.exit(__doc__)
    try:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
    except KeyboardInterrupt:
        sys.exit(130)
