"""The rules, the example configuration and the Grafana board in ``deploy/``, and a Prometheus that scrapes for real."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from shampoo_queue.contract import TOOLS
from shampoo_queue.server.metrics import Metrics
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.server.door import Door
from tests.servers import free_port
from tests.sight.looks import people, something_of_everything, spend
from tests.sight.programs import prometheus, promtool
from tests.sight.test_metrics import scrape

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "shampoo.rules.yml"
BOARD = DEPLOY / "grafana" / "shampoo.json"

real = pytest.mark.parametrize("engine", REAL, indirect=True)


def run(*command: str | Path, folder: Path = DEPLOY / "prometheus") -> tuple[int, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60)
    return done.returncode, (done.stdout + done.stderr).decode()


def everything(queue: Queue, clock: Clock) -> bytes:
    """Give metrics in which every family has a sample."""
    something_of_everything(queue, clock)
    metrics = Metrics()
    for tool in TOOLS:
        metrics.tool_call(tool.name, "http", "ok", 0.01)
    return asyncio.run(scrape(metrics, queue))


def expressions() -> Iterator[str]:
    """Every PromQL expression of the rules and of the board."""
    yield from re.findall(r"^ +expr: (?:>-\n)?((?:.+)(?:\n {10}.+)*)", RULES.read_text("utf-8"), re.MULTILINE)
    board = json.loads(BOARD.read_text("utf-8"))
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (variable["query"]["query"] for variable in board["templating"]["list"][1:])


def test_promtool_accepts_rules_and_configuration(tmp_path: Path) -> None:
    assert run(promtool(), "check", "rules", RULES)[0] == 0
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    (tmp_path / "shampoo.token").write_text("shp_x")
    code, said = run(promtool(), "check", "config", "prometheus.yml", folder=tmp_path)
    assert code == 0 and "11 rules found" in said, said


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    code, said = run(promtool(), "test", "rules", "shampoo.rules.test.yml")
    assert code == 0 and "SUCCESS" in said, said
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text("utf-8"))
    tested = (DEPLOY / "prometheus" / "shampoo.rules.test.yml").read_text("utf-8")
    fired = set(re.findall(r"alertname: (\w+)\n +exp_alerts:", tested))
    quiet = set(re.findall(r"alertname: (\w+) \}", tested))
    assert len(alerts) == 11 and fired == quiet == set(alerts)


@pytest.mark.parametrize(("old", "new"), [("> 600", "> 60000"), ("> 0.85", "> 0.95"), (" offset 10m", "")])
def test_a_fault_in_a_rule_is_found_by_its_tests(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    rules = tmp_path / RULES.name
    assert old in rules.read_text("utf-8")
    rules.write_text(rules.read_text("utf-8").replace(old, new), "utf-8")
    assert run(promtool(), "test", "rules", "shampoo.rules.test.yml", folder=tmp_path)[0] != 0


@real
def test_every_name_in_rules_and_board_is_a_metric_that_is_given(queue: Queue, clock: Clock) -> None:
    given = set(re.findall(r"^(\w+)(?:\{| )", everything(queue, clock).decode(), re.MULTILINE))
    asked = {name for text in expressions() for name in re.findall(r"\b(?:shampoo|process)_\w+", text)}
    assert len(asked) > 12 and asked <= given, asked - given
    ours = {
        name for name in given if name.startswith("shampoo_") and not name.endswith(("_created", "_bucket", "_sum"))
    }
    assert ours - asked - {"shampoo_counts_partial"} == set(), "a metric that no rule and no panel shows"


@real
def test_every_label_in_rules_and_board_is_one_that_is_given(queue: Queue, clock: Clock) -> None:
    labels = set(re.findall(r'(\w+)="', everything(queue, clock).decode())) | {"job", "instance"}
    for text in expressions():
        used = set(re.findall(r'(\w+)(?:=~|!=|=)"', text))
        for group in re.findall(r"by \(([^)]*)\)", text):
            used |= {name.strip() for name in group.split(",")}
        assert used <= labels, (text, used - labels)


def test_the_board_is_whole() -> None:
    board = json.loads(BOARD.read_text("utf-8"))
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) > 15
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and all(x < 24 for x, _ in cells), panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"], panel["title"]


# A real Prometheus ---------------------------------------------------------------------------------------------


@contextmanager
def scraping(folder: Path, target: int, token: str) -> Iterator[str]:
    """Run a Prometheus with our configuration, at a quicker pace; give its URL."""
    shutil.copytree(DEPLOY / "prometheus", folder, dirs_exist_ok=True)
    (folder / "shampoo.token").write_text(token)
    configuration = folder / "prometheus.yml"
    text = configuration.read_text("utf-8").replace("127.0.0.1:8080", f"127.0.0.1:{target}").replace(": 15s", ": 1s")
    configuration.write_text(text, "utf-8")
    port = free_port()
    options = ("--storage.tsdb.path", str(folder / "data"), "--web.listen-address", f"127.0.0.1:{port}")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [prometheus(), "--config.file", str(configuration), *options], stdout=log, stderr=log
        )
        try:
            yield f"http://127.0.0.1:{port}/api/v1"
        finally:
            process.terminate()
            process.wait(timeout=20)


def ask(url: str, enough: Callable[[list[Any]], bool]) -> list[Any]:
    """Ask until the results are enough, for 30 seconds at most."""
    until, found = time.monotonic() + 30, list[Any]()
    while not enough(found) and time.monotonic() < until:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            data = json.load(answer)["data"]
            found = data["result"] if "result" in data else data["activeTargets"]
        time.sleep(0.1)
    return found


@real
def test_a_real_prometheus_scrapes_a_real_server(queue: Queue, tmp_path: Path) -> None:
    called = people(queue)
    queue.create(called["boss"], kind="spent", project="a")
    spend(called["a"], "spent", None)
    queue.create(called["boss"], kind="spent", project="a")
    queue.create(called["boss"], 3, kind="k", project="a")
    called["a"].job_claim(kind="k", lease_seconds=1)
    issue = queue.shampoo.registry.issue_token
    tokens = {scope: issue("a", scope=scope).token for scope in ("metrics", "tools")}
    with Door(queue.engine.url) as door:
        body = b'{"kind": "none"}'
        assert door.ask("POST", "/v1/tools/job_claim", body, token=tokens["tools"]).status == 200
        assert door.ask("GET", "/metrics", token=tokens["tools"]).status == 403
        assert door.ask("GET", "/metrics", token=tokens["metrics"][:-1]).status == 401
        with scraping(tmp_path, door.port, tokens["metrics"]) as api:
            (target,) = ask(f"{api}/targets", lambda found: [one["health"] for one in found] == ["up"])
            assert target["lastError"] == "" and "shp_" not in json.dumps(target)
            mine = f'profile="{queue.profile}"'
            alerts = ask(f"{api}/query?query=" + quote(f"ALERTS{{{mine}}}"), lambda found: len(found) == 2)
            names = {(one["metric"]["alertname"], one["metric"]["kind"]) for one in alerts}
            assert names == {("ShampooJobsExhausted", "spent"), ("ShampooLeasesLapsed", "k")}
            jobs = ask(f"{api}/query?query=" + quote(f"shampoo_jobs{{{mine}}} > 0"), lambda found: len(found) == 4)
            assert {(one["metric"]["kind"], one["metric"]["standing"]): one["value"][1] for one in jobs} == {
                ("spent", "queued"): "1",
                ("spent", "exhausted"): "1",
                ("k", "queued"): "2",
                ("k", "lapsed"): "1",
            }
            (calls,) = ask(f"{api}/query?query=" + quote('shampoo_tool_calls_total{tool="job_claim"}'), bool)
            assert (calls["metric"]["door"], calls["metric"]["code"], calls["value"][1]) == ("http", "ok", "1")
            (failed,) = ask(f"{api}/query?query=shampoo_auth_failures_total", bool)
            assert failed["value"][1] == "1"


@pytest.mark.parametrize("expression", list(expressions()), ids=lambda text: re.sub(r"\W+", "-", text)[:60])
def test_every_expression_parses(expression: str, tmp_path: Path) -> None:
    if expression.startswith("label_values("):
        return
    for variable, value in (("$__rate_interval", "1m"), ("$profile", ".*"), ("$kind", ".*")):
        expression = expression.replace(variable, value)
    quoted = json.dumps(" ".join(expression.split()))
    rule = tmp_path / "one.yml"
    rule.write_text(f"groups: [{{name: g, rules: [{{record: 'a:b', expr: {quoted}}}]}}]\n", "utf-8")
    assert run(promtool(), "check", "rules", rule)[0] == 0
