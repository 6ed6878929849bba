"""Deliver jobs over HTTP: signed, bounded, and kept off inner networks.

    pump = Pump(Signer.read("secrets.json"))
    pump.run(shampoo, client_id)

``shampoo pump --as CLIENT`` is the same from the command line. It needs ``pip install 'shampoo_queue[pump]'``.
"""

from .breaker import Patience
from .deliver import Limits
from .network import parse_networks
from .pump import Pump
from .signing import Signer

__all__ = ["Limits", "Patience", "Pump", "Signer", "parse_networks"]
