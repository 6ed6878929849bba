"""Reading a request's JSON: strictly, and otherwise as the standard library does."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from shampoo_queue.errors import BadRequest
from shampoo_queue.server import answers

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_every_json_object_is_read_as_the_standard_library_does(found: object, ascii_only: bool) -> None:
    assert answers.parse(json.dumps({"x": found}, ensure_ascii=ascii_only).encode()) == {"x": found}


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_a_bad_request(body: bytes) -> None:
    for sent in (body, b'{"a":' + body + b"}"):
        with suppress(BadRequest):
            assert isinstance(answers.parse(sent), dict)


@given(st.text(max_size=60))
def test_a_lone_surrogate_comes_through_for_the_contract_to_refuse(text: str) -> None:
    sent = {"kind": f"{text}\ud800"}
    assert answers.parse(json.dumps(sent).encode()) == sent
