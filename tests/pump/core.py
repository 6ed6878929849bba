"""Deliver to a sink without a queue: what the tests of single deliveries share."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from typing import Any

from shampoo_queue.pump.deliver import Limits, Verdict, deliver
from shampoo_queue.pump.network import Connector, Resolver
from shampoo_queue.pump.payload import parse

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
QUICK = Limits(total_seconds=1.0, connect_seconds=0.5, silence_seconds=0.4, drain_seconds=0.2)


def send(
    uri: str,
    *,
    limits: Limits = QUICK,
    allowed: Any = LOOPBACK,
    resolve: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
    may_send: Any = lambda: True,
    **facts: Any,
) -> Verdict:
    """Make one delivery to a URI."""
    delivery = parse(json.dumps({"uri": uri, **facts}))
    connector = Connector(allowed, resolve)
    context = tls or ssl.create_default_context()
    return asyncio.run(deliver(delivery, [("Webhook-Id", "an-id")], connector, context, limits, may_send))
