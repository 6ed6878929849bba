"""Sign deliveries as Standard Webhooks ask for: an id that stays, a fresh timestamp, one signature a secret."""

from __future__ import annotations

import base64
import binascii
import logging
import os
import stat
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from standardwebhooks import Webhook

from ..contract import safe_name
from ..errors import ConfigurationError
from .payload import BadPayload, json_object

EVERY_OTHER = "*"
MOST_SECRETS = 2  # the one in use, and the one it is being replaced with
FEWEST_BYTES = 24
LOOK_SECONDS = 1.0  # at least, between two looks at the secrets file

_log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int, int, int]


class NoSecret(Exception):
    """Secrets are configured, but none for this project."""


class Signer:
    """The secrets by project, and what they sign. Neither ``repr`` nor any error shows a secret.

    ``secrets`` maps a project to a secret, to a list of at most two, or to ``None`` for deliveries without signature;
    ``"*"`` stands for every project not named, ``""`` for untagged jobs. A secret is base64, with or without
    ``whsec_`` before it. An empty mapping has a secret for nobody: `none` is what signs nothing.
    """

    def __init__(self, secrets: Mapping[str, Any]) -> None:
        """Raise `ConfigurationError` when a secret is none."""
        self._webhooks = _checked(secrets)
        self._file: _File | None = None

    @classmethod
    def none(cls) -> Signer:
        """Send everything without signature, since no secrets are configured."""
        return cls({EVERY_OTHER: None})

    @classmethod
    def read(cls, path: str) -> Signer:
        """Read the secrets from a JSON file, again whenever it has changed; raise `ConfigurationError`.

        A change is seen within a second of the next delivery. When the file is gone or wrong then, that is logged once
        and the former secrets stay in use. A pipe is read once.
        """
        file = _File(path)
        signer = cls(file.read())
        signer._file = file if file.stamp() else None
        return signer

    @property
    def signs_nothing(self) -> bool:
        """Whether deliveries are sent, and none of them is signed."""
        return bool(self._webhooks) and not any(self._webhooks.values())

    @property
    def asks_for_project(self) -> bool:
        """Whether the project of a job decides how it is signed, or may come to when the file changes."""
        return self._file is not None or bool(self._webhooks.keys() - {EVERY_OTHER})

    def headers(self, project: str, delivery_id: str, body: bytes) -> list[tuple[str, str]]:
        """Give the headers of one attempt, at this moment; raise `NoSecret`."""
        self._refresh()
        webhooks = self._webhooks.get(project, self._webhooks.get(EVERY_OTHER))
        if webhooks is None:
            raise NoSecret
        now = datetime.now(UTC)
        found = [("Webhook-Id", delivery_id), ("Webhook-Timestamp", str(int(now.timestamp())))]
        if webhooks:
            text = body.decode()
            found.append(("Webhook-Signature", " ".join(one.sign(delivery_id, now, text) for one in webhooks)))
        return found

    def _refresh(self) -> None:
        try:
            if self._file and self._file.changed():
                self._webhooks = _checked(self._file.read())
                _log.info("the secrets file has changed and was read again")
        except ConfigurationError as error:
            if self._file and self._file.is_news():
                _log.warning("%s; the former secrets stay in use", error)


class _File:
    """The secrets file, and which state of it was read last."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._looked_at = -LOOK_SECONDS
        self._found: _Stamp | None = None
        self._read: _Stamp | None = None
        self._told: _Stamp | Literal["nothing"] | None = "nothing"

    def stamp(self) -> _Stamp | None:
        """Give what differs after any change; None without a regular file: to open a pipe may wait for ever."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return _stamp(found) if stat.S_ISREG(found.st_mode) else None

    def changed(self) -> bool:
        """Look, unless that was just done; raise `ConfigurationError` when there is no file any more."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        self._found = self.stamp()
        if self._found is None:
            raise ConfigurationError("the secrets file is gone")
        if self._found == self._read:
            self._told = "nothing"
            return False
        return True

    def is_news(self) -> bool:
        """Whether nothing was said yet about the state that was found."""
        before, self._told = self._told, self._found
        return before != self._told

    def read(self) -> dict[str, Any]:
        """Read the secrets, unchecked; raise `ConfigurationError`. A file that others can read is said."""
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                content = file.read()
        except OSError as error:
            raise ConfigurationError(f"the secrets file cannot be read: {error.strerror}") from None
        # Taken from before the reading, so that a change in its course is seen at the next look.
        self._read, self._told = _stamp(status), "nothing"
        try:
            found = json_object(content.decode())
        except UnicodeDecodeError:
            raise ConfigurationError("the secrets file is wrong: not UTF-8") from None
        except BadPayload as bad:
            raise ConfigurationError(f"the secrets file is wrong: {bad}") from None
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            _log.warning("the secrets file is open to other accounts of this machine: chmod 600 it")
        return found


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _checked(secrets: Mapping[str, Any]) -> dict[str, tuple[Webhook, ...]]:
    return {project: _webhooks(project, given) for project, given in secrets.items()}


def _webhooks(project: str, given: Any) -> tuple[Webhook, ...]:
    secrets = [] if given is None else given if isinstance(given, list) else [given]
    if len(secrets) > MOST_SECRETS or (given is not None and not secrets):
        raise ConfigurationError(f"{_named(project)} must have one secret, two, or null")
    return tuple(Webhook(_key(project, secret)) for secret in secrets)


def _key(project: str, secret: Any) -> bytes:
    text = secret.removeprefix("whsec_").rstrip("=") if isinstance(secret, str) else ""
    try:
        # Checked here, since the signing library passes over whatever is not base64.
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ConfigurationError(f"a secret of {_named(project)} is not base64, with or without whsec_ before it")
    if len(key) < FEWEST_BYTES:
        _log.warning("a secret of %s is shorter than %d bytes", _named(project), FEWEST_BYTES)
    return key


def _named(project: str) -> str:
    if project.startswith("whsec_"):
        return "a project whose name and secret are mixed up"
    return f"project {safe_name(project)}" if project else "the untagged jobs"
