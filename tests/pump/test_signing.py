"""Signatures that the Standard Webhooks library itself accepts, and secrets that show nowhere."""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from shampoo_queue.errors import ConfigurationError
from shampoo_queue.pump import signing
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


def test_an_empty_object_has_a_secret_for_nobody() -> None:
    signer = Signer({})
    assert not signer.signs_nothing
    with pytest.raises(NoSecret):
        signed(signer)


def test_without_any_secret_nothing_is_signed_but_everything_is_named() -> None:
    signer = Signer.none()
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MARKER",
        "[]",
        '"MARKER"',
        '{"p": "MARKER!"}',
        '{"p": ["MARKER!"]}',
        "\udcff",
        f'{{"MARKER": "{OLD}", "MARKER": "{OLD}"}}',
        '{"MARKER": NaN}',
        pytest.param("[" * 200_000, id="nested"),
        pytest.param('{"MARKER":' * 200_000, id="nested objects"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets.json"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigurationError) as refused:
        Signer.read(str(path))
    assert "MARKER" not in str(refused.value) and OLD not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        Signer.read(str(tmp_path / "none"))


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A secrets file at which every use looks."""
    monkeypatch.setattr(signing, "LOOK_SECONDS", 0)
    return written(tmp_path / "secrets.json", json.dumps({"p": OLD}))


def written(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_changes_is_read_again(watched: Path, caplog: pytest.LogCaptureFixture, replaced: bool) -> None:
    signer = Signer.read(str(watched))
    assert signer.asks_for_project
    assert accepts(OLD, signed(signer))
    text = json.dumps({"p": "whsec_" + NEW + "="})  # as long as before
    if replaced:
        written(watched.with_suffix(".new"), text).replace(watched)
    else:
        written(watched, text)
    assert accepts(NEW, signed(signer)) and not accepts(OLD, signed(signer))
    written(watched, "{}")
    with pytest.raises(NoSecret):
        signed(signer)
    assert not warnings(caplog)


@pytest.mark.parametrize("text", ["", "MARKER", '{"p": "MARKER!"}', "[" * 200_000], ids=range(4))
def test_a_file_that_is_wrong_after_a_change_keeps_the_former_secrets_and_is_said_once(
    watched: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    signer = Signer.read(str(watched))
    for change in (1, 2):
        written(watched, text + " " * change)
        assert all(accepts(OLD, signed(signer)) for _ in range(3))
        assert len(warnings(caplog)) == change
    assert "former secrets stay in use" in caplog.text and "MARKER" not in caplog.text
    written(watched, json.dumps({"p": NEW}))
    assert accepts(NEW, signed(signer))


def test_a_file_that_goes_and_comes_is_said_each_time_it_is_gone(
    watched: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signer = Signer.read(str(watched))
    aside = watched.with_suffix(".aside")
    for change in (1, 2):
        watched.rename(aside)
        assert all(accepts(OLD, signed(signer)) for _ in range(3))
        assert len(warnings(caplog)) == change
        aside.rename(watched)
        assert accepts(OLD, signed(signer))
    watched.unlink()
    os.mkfifo(watched)  # opening it would wait for a writer for ever
    assert accepts(OLD, signed(signer))
    assert len(warnings(caplog)) == 3


def test_a_file_that_cannot_be_opened_for_a_moment_is_tried_again(
    watched: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    signer = Signer.read(str(watched))
    written(watched, json.dumps({"p": NEW}))
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", fails)
        headers = [signed(signer) for _ in range(3)]
    assert all(accepts(OLD, one) for one in headers)
    assert len(warnings(caplog)) == 1
    assert accepts(NEW, signed(signer))


def test_a_file_is_not_looked_at_for_every_delivery(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer.read(str(watched))
    assert accepts(OLD, signed(signer))
    monkeypatch.setattr(signing, "LOOK_SECONDS", 3600)
    written(watched, json.dumps({"p": NEW}))
    assert accepts(OLD, signed(signer))
    monkeypatch.setattr(signing, "LOOK_SECONDS", 0)
    assert accepts(NEW, signed(signer))


def test_secrets_from_a_pipe_are_read_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "LOOK_SECONDS", 0)
    reading, writing = os.pipe()
    try:
        os.write(writing, json.dumps({"p": OLD}).encode())
        os.close(writing)
        signer = Signer.read(f"/dev/fd/{reading}")
        assert accepts(OLD, signed(signer)) and accepts(OLD, signed(signer))
    finally:
        os.close(reading)
    assert not warnings(caplog)


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
