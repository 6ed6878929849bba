"""The catalogue page says of each tool what the contract's table says, and finds what is asked."""

from __future__ import annotations

import json
import re

import pytest

from shampoo_queue import contract
from shampoo_queue.errors import REFUSALS
from shampoo_queue.server import catalogue
from tests.ui.site import Person, Strict

pytestmark = pytest.mark.parametrize("engine", ["redis7"], indirect=True)


def shown(html: str) -> list[str]:
    """Give the names of the tools that are not hidden."""
    articles = [given for tag, given in Strict(html).tags if tag == "article"]
    assert len(articles) == len(contract.TOOLS)
    return [given["id"] for given in articles if "hidden" not in given]


def part_of(html: str, tool: str) -> str:
    return Strict(html[html.index(f'<article class="panel tool" id="{tool}"') :].partition("</article>")[0]).text


def test_it_needs_no_token_and_is_sound(stranger: Person) -> None:
    answer = stranger.get("/tools")
    assert answer.status_code == 200
    assert Strict(answer.text).problems == []
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "9 documented tools" in answer.text


@pytest.mark.parametrize("tool", contract.TOOLS, ids=lambda tool: tool.name)
def test_each_tool_is_told_whole(stranger: Person, tool: contract.Tool) -> None:
    text = part_of(stranger.get("/tools").text, tool.name)
    for wanted in (tool.access, tool.summary, tool.boundaries, tool.lifecycle, *tool.events, *tool.result_keys):
        assert wanted in text
    for name, schema in contract.argument_schema(tool.name)["properties"].items():
        assert name in text
        for value in re.findall(r'"(?:maxLength|maximum)": (\d+)', json.dumps(schema)):
            assert f"{int(value):,}" in text, f"{name} has a limit"
        for choice in re.findall(r'"enum": \[(.*?)\]', json.dumps(schema)):
            assert all(one.strip('" ') in text for one in choice.split(","))
    for code in tool.refusals:
        assert code in text
        assert REFUSALS[code].words in text
    for door in ("HTTP", "Python", "Command line", "MCP"):
        assert door in text
    for call in (
        f"/v1/tools/{tool.name}",
        f"client.{tool.name}(",
        f"shampoo call {tool.name} ",
        f'"name": "{tool.name}"',
    ):
        assert call in text


def test_names_within_a_text_are_shown_as_code(stranger: Person) -> None:
    html = stranger.get("/tools").text
    assert "``" not in html
    assert "<code>job_create</code> named a lane that does not exist." in html
    assert html.count("<h4>Errors</h4>") == len(contract.TOOLS)


def test_what_every_tool_answers_is_told_once(stranger: Person) -> None:
    html = stranger.get("/tools").text
    common = Strict(html[html.index('<section class="panel tool" id="every-tool"') :].partition("</section>")[0]).text
    for code in contract.COMMON_REFUSALS:
        assert code in common
        assert str(REFUSALS[code].http_status) in common
        assert REFUSALS[code].words in common


@pytest.mark.parametrize(
    "asked, found",
    [
        ("", [tool.name for tool in contract.TOOLS]),
        ("lease_seconds", ["job_claim"]),
        ("LEASE_EXPIRED", ["job_complete", "job_release"]),
        ("conductors verdict", ["lane_review"]),
        ("result_commit", ["lane_list", "lane_merge"]),
        ("xyzzy", []),
        ('"><script>', []),
    ],
)
def test_it_finds_tools_by_all_words_asked(stranger: Person, asked: str, found: list[str]) -> None:
    answer = stranger.client.get("/tools", params={"q": asked})
    assert shown(answer.text) == found
    assert Strict(answer.text).problems == []
    assert f"{len(found)} {'tool' if len(found) == 1 else 'tools'}" in answer.text


def test_a_very_long_question_is_cut(stranger: Person) -> None:
    assert len(stranger.client.get("/tools", params={"q": "x" * 5_000}).text) < 200_000


def test_the_examples_are_the_tables_own(engine: object) -> None:
    for entry in catalogue.entries():
        http = entry.examples[0]
        body = http.call.partition("-d ")[2].strip("'")
        assert json.loads(body) == entry.tool.example
        assert json.loads(http.answer) == entry.tool.example_result
