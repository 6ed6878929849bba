"""A distributed work queue on Redis for fleets of executors: nine tools, atomic moves, fenced leases, full history."""

from . import contract, errors
from .client import AsyncShampoo, Shampoo
from .contract import Meta
from .errors import ConfigurationError, EngineError, OperatorError, ShampooError, ToolError
from .facade import AsyncClient, Client
from .history import Event, replay
from .registry import Principal, Quorum, Task
from .tools import Answer

__version__ = "0.3.0"

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncShampoo",
    "Client",
    "ConfigurationError",
    "EngineError",
    "Event",
    "Meta",
    "OperatorError",
    "Principal",
    "Quorum",
    "Shampoo",
    "ShampooError",
    "Task",
    "ToolError",
    "__version__",
    "contract",
    "errors",
    "replay",
]
