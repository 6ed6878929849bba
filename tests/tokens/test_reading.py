"""The form of a token: what is none is told at sight, whatever bytes somebody presents."""

from __future__ import annotations

import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from shampoo_queue import tokens

FORM = re.compile(r"shp_[0-9A-Za-z]{12}_[0-9A-Za-z]{46}")
minted = st.builds(tokens.mint)
places = st.integers(0, 62)


def test_a_token_is_new_every_time_and_reads_as_itself() -> None:
    known = {tokens.mint() for _ in range(500)}
    assert len({token[17:57] for token in known}) == len({token[4:16] for token in known}) == 500
    for token in known:
        presented = tokens.read(token)
        assert presented is not None
        assert FORM.fullmatch(token)
        assert presented == tokens.read(token.encode())
        assert presented.token_id == token[4:16]
        assert presented.digest == hashlib.sha256(token.encode()).hexdigest()


def test_every_character_of_the_alphabet_comes_up() -> None:
    assert len(set("".join(tokens.mint()[17:57] for _ in range(200)))) == 62


@given(minted)
def test_what_is_presented_holds_nothing_of_the_secret(token: str) -> None:
    presented = tokens.read(token)
    assert token[17:] not in f"{presented!r} {presented}"
    assert str(presented) == f"\0{token[4:16]} {hashlib.sha256(token.encode()).hexdigest()}"


@given(st.binary(max_size=200) | st.text(max_size=200) | st.text(st.characters(categories=["Cs"]), max_size=70))
def test_arbitrary_bytes_and_text_are_no_token(presented: bytes | str) -> None:
    assert tokens.read(presented) is None


@given(st.from_regex(FORM, fullmatch=True))
def test_what_only_looks_like_a_token_is_told_by_its_check(text: str) -> None:
    assert tokens.read(text) is None or text[57:] == tokens._check(text[:57].encode())


@given(minted, places, st.characters(codec="utf-8"))
def test_one_wrong_character_makes_it_none(token: str, place: int, other: str) -> None:
    assert tokens.read(token[:place] + other + token[place + 1 :]) is None or token[place] == other


@given(minted, st.integers(0, 61))
def test_two_characters_that_changed_places_make_it_none(token: str, place: int) -> None:
    swapped = token[:place] + token[place + 1] + token[place] + token[place + 2 :]
    assert tokens.read(swapped) is None or swapped == token


@given(minted, places, st.binary(min_size=1, max_size=3))
def test_a_byte_too_many_or_too_few_makes_it_none(token: str, place: int, more: bytes) -> None:
    raw = token.encode()
    assert tokens.read(raw[:place] + raw[place + 1 :]) is None
    assert tokens.read(raw[:place] + more + raw[place:]) is None
    assert tokens.read(raw + more) is None
    assert tokens.read(more + raw) is None


def test_nothing_is_trimmed_or_folded() -> None:
    token = tokens.mint()
    for text in (f" {token}", f"{token} ", f"{token}\n", f"{token}\0", f"Bearer {token}", token.upper(), token.lower()):
        assert tokens.read(text) is None
    assert tokens.read(token.replace("shp_", "\uff53hp_")) is None
    assert tokens.read("shp_" * 300_000) is None
