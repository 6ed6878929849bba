"""Somebody between a bridge and the server, who loses and breaks answers as a test plans it."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

PASS, LOSE_REPLY, LOSE_REQUEST = "pass", "lose reply", "lose request"


class Middle:
    """Forward each request, or do what is planned for it; ``seen`` has the headers of the calls, oldest first."""

    def __init__(self, target: str) -> None:
        self.seen: list[dict[str, str]] = []
        self.plan: list[str | tuple[int, dict[str, str], bytes]] = []
        address, middle = urlsplit(target).netloc, self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.pass_on(PASS)

            def do_POST(self) -> None:
                middle.seen.append({name.lower(): value for name, value in self.headers.items()})
                self.pass_on(middle.plan.pop(0) if middle.plan else PASS)

            def pass_on(self, fate: str | tuple[int, dict[str, str], bytes]) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, headers, content = 0, {}, b""
                if fate in (PASS, LOSE_REPLY):
                    asked = http.client.HTTPConnection(address, timeout=10)
                    asked.request(self.command, self.path, body, dict(self.headers))
                    answer = asked.getresponse()
                    status, headers, content = answer.status, dict(answer.headers), answer.read()
                    asked.close()
                elif isinstance(fate, tuple):
                    status, headers, content = fate
                if fate in (LOSE_REPLY, LOSE_REQUEST):
                    self.close_connection = True
                    return
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
