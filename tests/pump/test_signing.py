"""Signatures that the Standard Webhooks library itself accepts, and secrets that show nowhere."""

from __future__ import annotations

import base64
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from shampoo_queue.errors import ConfigurationError
from shampoo_queue.pump.signing import NoSecret, Signer

OLD = "whsec_" + base64.b64encode(b"old-" * 8).decode()
NEW = base64.b64encode(b"new-" * 8).decode().rstrip("=")
BODY = '{"ü":  12345678901234567890}\r'


def signed(signer: Signer, project: str = "p") -> dict[str, str]:
    return dict(signer.headers(project, "an-id", BODY.encode()))


def accepts(secret: str, headers: dict[str, str]) -> bool:
    try:
        Webhook(secret).verify(BODY, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


def test_a_delivery_is_signed_with_its_projects_secret_at_this_moment() -> None:
    headers = signed(Signer({"p": OLD, "q": NEW}))
    assert headers["Webhook-Id"] == "an-id"
    assert abs(int(headers["Webhook-Timestamp"]) - time.time()) <= 2
    assert accepts(OLD, headers)
    assert not accepts(NEW, headers)


def test_during_a_rotation_both_secrets_sign() -> None:
    headers = signed(Signer({"p": [NEW, OLD]}))
    assert headers["Webhook-Signature"].count(" ") == 1
    assert accepts(OLD, headers) and accepts(NEW, headers)


def test_a_star_stands_for_every_project_not_named_and_null_for_no_signature() -> None:
    signer = Signer({"*": OLD, "q": None, "": NEW})
    assert accepts(OLD, signed(signer, "p"))
    assert accepts(NEW, signed(signer, ""))
    assert "Webhook-Signature" not in signed(signer, "q")


def test_a_project_without_a_secret_is_not_sent_unsigned_by_oversight() -> None:
    with pytest.raises(NoSecret):
        signed(Signer({"q": OLD}))


def test_without_any_secret_nothing_is_signed_but_everything_is_named() -> None:
    signer = Signer({})
    assert signer.signs_nothing and not signer.asks_for_project
    assert set(signed(signer)) == {"Webhook-Id", "Webhook-Timestamp"}


@pytest.mark.parametrize(
    "given", ["", "whsec_", "not base64!", "whsec_a b", 5, True, {}, [], [OLD, NEW, OLD], [OLD, None], [[OLD]], "ä"]
)
def test_what_is_no_secret_is_a_configuration_error(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="project 'p'"):
        Signer({"p": given})


def test_a_short_secret_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Signer({"p": base64.b64encode(b"short").decode()})
    assert "shorter than 24 bytes" in caplog.text


def test_secrets_are_read_from_a_file_and_an_open_file_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secrets.json"
    path.write_text(json.dumps({"p": [NEW, OLD]}))
    path.chmod(0o600)
    assert accepts(OLD, signed(Signer.read(str(path))))
    assert not caplog.records
    path.chmod(0o644)
    Signer.read(str(path))
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize("text", ["", "MARKER", "[]", '"MARKER"', '{"p": "MARKER!"}', '{"p": ["MARKER!"]}', "\udcff"])
def test_a_file_that_is_wrong_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets.json"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigurationError) as refused:
        Signer.read(str(path))
    assert "MARKER" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        Signer.read(str(tmp_path / "none"))


def test_a_secret_in_the_place_of_a_name_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Signer({OLD: "p!"})
    assert OLD not in str(refused.value)


def test_no_secret_shows_in_what_the_signer_prints(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    signer = Signer({"p": [OLD, NEW]})
    shown = f"{signer!r} {signer} {vars(signer)!r} {signed(signer)!r} {caplog.text}"
    for secret in (OLD, NEW, "old-old-", "new-new-", OLD.removeprefix("whsec_")):
        assert secret not in shown
