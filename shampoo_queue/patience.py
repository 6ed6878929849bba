"""Read what went wrong with a try, and decide whether, and when, to try again.

A try that failed without an answer is repeated under the same request id, so that the script recognises it.
"""

from __future__ import annotations

import logging
import random
import uuid
from dataclasses import dataclass

from redis.exceptions import RedisError, ResponseError, TimeoutError

from . import errors, scripts
from .clock import now
from .errors import Internal, Refusal, Unavailable
from .moves import Block, Move, Sent

log = logging.getLogger("shampoo_queue")

# First words of an error that says: nothing ran, try again in a moment.
PASSING = {
    "LOADING": "it is loading its data",
    "BUSY": "it is busy with a long script",
    "READONLY": "this node is a replica and takes no writes",
    "MASTERDOWN": "this replica has lost its primary",
    "CLUSTERDOWN": "the cluster is down",
    "TRYAGAIN": "the profile is moving to another node",
    "ASK": "the profile is moving to another node",
    "MOVED": "the profile has moved to another node",
    "NOREPLICAS": "too few replicas are connected",
    "UNBLOCKED": "it has become a replica",
    "NOSCRIPT": "its scripts are flushed faster than they load",
}
# Those that waiting a moment will not mend; still no fault of the call.
LASTING = {
    "OOM": "it is out of memory and takes no new work; claim, complete and release go on",
    "MISCONF": "it cannot save to disk and takes no writes",
    "NOAUTH": "it asks for a password",
    "WRONGPASS": "it refuses the user or password",
    "NOPERM": "the Redis user lacks a permission",
}
# redis-py drops the first word of the errors it has a class for.
_WORD_OF_CLASS = {
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "AskError": "ASK",
    "MovedError": "MOVED",
    "OutOfMemoryError": "OOM",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "WRONGPASS",
    "NoScriptError": "NOSCRIPT",
}


def error_word(error: Exception) -> str:
    """Give the first word of a server's error, the one that programs are meant to read."""
    return _WORD_OF_CLASS.get(type(error).__name__) or str(error).partition(" ")[0]


def leaves_clean(error: BaseException) -> bool:
    """Tell whether a connection is fit for the next call: its reply was read, and it leads to a primary."""
    return isinstance(error, ResponseError) and error_word(error) not in ("READONLY", "MASTERDOWN")


@dataclass(slots=True)
class Sending:
    """Whether any byte of a try may have reached the server."""

    begun: bool = False


class Patience:
    """Decide after a failed try whether, and when, to try again; give up with the error that the caller sees.

    The time counts from the first sending, and is looked at again just before each repeat: a repeat after the server
    has forgotten the call's request id would be a second call.
    """

    def __init__(self, move: Sent, seconds: float) -> None:
        self._move = move
        # What waits for a sign waits on purpose.
        self._until = now() + seconds + (move.seconds if isinstance(move, Block) else 0.0)
        self._tries = 0
        self._unknown = False
        self._last: tuple[Exception, str] | None = None

    def pause(self, error: Exception, sent: bool) -> float:
        """Give the seconds to wait before the next try, or raise."""
        if not isinstance(error, RedisError | OSError):
            raise error if isinstance(error, errors.ShampooError) else self._defect(error) from error
        word = error_word(error)
        if isinstance(error, ResponseError) and word not in PASSING and word not in LASTING:
            raise self._refusal(error, word) from None
        answered = word in PASSING or word in LASTING
        self._unknown = self._unknown or (sent and not answered)
        self._tries += 1
        self._last = (error, word)
        pause = random.uniform(0.5, 1.0) * min(1.0, 0.01 * 2.0**self._tries)
        if word in LASTING or now() + pause > self._until:
            raise self._unavailable(error, word) from error
        return pause

    def still(self) -> None:
        """Raise when the time is over, whatever the wait itself has cost."""
        if self._last and now() > self._until:
            raise self._unavailable(*self._last) from self._last[0]

    def _refusal(self, error: Exception, word: str) -> Refusal:
        kind = errors.REFUSALS.get(word.lower())
        if kind:
            return kind(request_id=self._move.request_id)
        return self._defect(error)

    def _defect(self, error: Exception) -> Internal:
        """Log what went wrong under an id, and give the caller that id."""
        number = uuid.uuid4().hex[:12]
        where = scripts.script(self._move.script).locate(str(error)) if isinstance(self._move, Move) else "a command"
        log.error("internal error %s in %s: %s: %s", number, where, type(error).__name__, error)
        return Internal(f"see the log for {number}", request_id=self._move.request_id, outcome_unknown=True)

    def _unavailable(self, error: Exception, word: str) -> Unavailable:
        reason = PASSING.get(word) or LASTING.get(word)
        if reason is None:
            reason = "no answer in time" if isinstance(error, TimeoutError) else "the connection failed"
        refusal = Unavailable(reason, request_id=self._move.request_id, outcome_unknown=self._unknown)
        refusal.retryable = word not in ("NOAUTH", "WRONGPASS", "NOPERM")
        return refusal
