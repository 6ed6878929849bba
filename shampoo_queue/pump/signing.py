"""Sign deliveries as Standard Webhooks ask for: an id that stays, a fresh timestamp, one signature a secret."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook

from ..contract import safe_name
from ..errors import ConfigurationError

EVERY_OTHER = "*"
MOST_SECRETS = 2  # the one in use, and the one it is being replaced with
FEWEST_BYTES = 24

_log = logging.getLogger(__name__)


class NoSecret(Exception):
    """Secrets are configured, but none for this project."""


class Signer:
    """The secrets by project, and what they sign. Neither ``repr`` nor any error shows a secret.

    ``secrets`` maps a project to a secret, to a list of at most two, or to ``None`` for deliveries without signature;
    ``"*"`` stands for every project not named, ``""`` for untagged jobs. A secret is base64, with or without
    ``whsec_`` before it. An empty mapping signs nothing.
    """

    def __init__(self, secrets: Mapping[str, Any]) -> None:
        """Raise `ConfigurationError` when a secret is none."""
        self._webhooks = {project: _webhooks(project, given) for project, given in secrets.items()}

    @classmethod
    def read(cls, path: str) -> Signer:
        """Read the secrets from a JSON file; raise `ConfigurationError`. A file that others can read is said once."""
        try:
            with open(path, encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode
                found = json.load(file)
        except OSError as error:
            raise ConfigurationError(f"the secrets file cannot be read: {error.strerror}") from None
        except ValueError:
            raise ConfigurationError("the secrets file is no JSON document in UTF-8") from None
        if not isinstance(found, dict):
            raise ConfigurationError("the secrets file must hold a JSON object of project names and secrets")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            _log.warning("the secrets file is open to other accounts of this machine: chmod 600 it")
        return cls(found)

    @property
    def signs_nothing(self) -> bool:
        """Whether no delivery is signed at all."""
        return not any(self._webhooks.values())

    @property
    def asks_for_project(self) -> bool:
        """Whether the project of a job decides how it is signed."""
        return bool(self._webhooks.keys() - {EVERY_OTHER})

    def headers(self, project: str, delivery_id: str, body: bytes) -> list[tuple[str, str]]:
        """Give the headers of one attempt, at this moment; raise `NoSecret`."""
        webhooks = self._webhooks.get(project, self._webhooks.get(EVERY_OTHER, () if not self._webhooks else None))
        if webhooks is None:
            raise NoSecret
        now = datetime.now(UTC)
        found = [("Webhook-Id", delivery_id), ("Webhook-Timestamp", str(int(now.timestamp())))]
        if webhooks:
            text = body.decode()
            found.append(("Webhook-Signature", " ".join(one.sign(delivery_id, now, text) for one in webhooks)))
        return found


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
