"""Receive deliveries: believe signed ones only, and refuse a sender whose job has gone to a newer one.

    SECRET=whsec_… python examples/receiver.py 8080

A job may be delivered more than once, by the same sender or its successor: `Webhook-Id` tells that it is the same.
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["SECRET"])
newest: dict[str, int] = {}  # the highest fence seen of each job; keep it where your data is


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            webhook.verify(body, dict(self.headers), json_parse=False)
            job_id, fence = self.headers["Webhook-Id"], int(self.headers["Shampoo-Fence"])
        except (WebhookVerificationError, TypeError, ValueError):
            return self.answer(401)
        if fence < newest.get(job_id, 0):
            return self.answer(409)
        newest[job_id] = fence
        print(job_id, body.decode(), flush=True)  # here goes your own work, before the answer
        return self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
