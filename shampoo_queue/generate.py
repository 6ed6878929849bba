"""Write the parts of the project that are derived: the typed facade and the tables of the README.

``python -m shampoo_queue.generate`` writes them, ``--check`` says which differ from what would be written.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import contract, errors, keys, scripts
from .claims import ClaimOperations
from .ops import OpsOperations
from .registry import RegistryOperations

ROOT = Path(__file__).parent.parent
WIDTH = 120

_HEADER = '''"""The library's typed surface, blocking and asyncio, over the operations that both share.

Generated from the contract table and the operations' signatures: change those, then run ``make generate``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from . import contract
from .claims import ClaimOperations, Ending, delayed
from .contract import JobClaimResult, JobCompleteResult, JobCreateResult, JobReleaseResult, JobRenewResult, JobStanding
from .errors import ToolError
from .moves import Operation
from .ops import Expired, OpsOperations
from .registry import IssuedToken, Principal, Quorum, RegistryOperations, Task, Token
from .tools import Answer, Caller

T = TypeVar("T")
R = TypeVar("R", bound=contract.Result)


class Run(Protocol):
    """Run an operation on blocking connections."""

    def __call__(self, operation: Operation[T], /) -> T: ...


class AsyncRun(Protocol):
    """Run an operation on asyncio connections."""

    async def __call__(self, operation: Operation[T], /) -> T: ...
'''


def facade() -> str:
    """Render ``facade.py``."""
    parts = [_HEADER]
    for asynchronous in (False, True):
        parts.append(_client(asynchronous))
        for operations, name, about in (
            (RegistryOperations, "Registry", "What the tools check against: principals, tokens, quorums, tasks"),
            (OpsOperations, "Ops", "The operators' moves and looks beside the nine tools"),
        ):
            parts.append(_surface(operations, name, about, asynchronous))
    return "\n\n".join(parts) + "\n"


def _client(asynchronous: bool) -> str:
    prefix, word = ("Async", "async ") if asynchronous else ("", "")
    wait = "await " if asynchronous else ""
    lines = [
        f"class {prefix}Client:",
        f'    """The nine tools in the name of one principal{", on asyncio" if asynchronous else ""}.',
        "",
        "    Safe to share between threads and tasks. ``client_id`` names a principal, ``holder`` this process of it.",
        '    """',
        "",
        f"    def __init__(self, caller: Caller, run: {prefix}Run) -> None:",
        "        self._caller, self._run, self._operations = caller, run, ClaimOperations(caller)",
        "",
        "    @property",
        "    def client_id(self) -> str:",
        "        return str(self._caller.client_id)",
        "",
        "    @property",
        "    def holder(self) -> str:",
        "        return self._caller.holder",
        "",
        f"    {word}def call(",
        "        self,",
        "        tool: str,",
        "        arguments: Mapping[str, Any] | None = None,",
        "        *,",
        "        request_id: str | None = None,",
        "        fence: int | None = None,",
        "        holder: str | None = None,",
        "    ) -> Answer:",
        *_docstring(inspect.getdoc(_caller_call()) or ""),
        "        operation = self._caller.call(tool, arguments, request_id=request_id, fence=fence, holder=holder)",
        f"        return {wait}self._run(operation)",
        "",
    ]
    for tool in contract.TOOLS:
        lines += [*_tool(tool, word, wait), ""]
    lines += [*_methods(ClaimOperations, word, wait)]
    return "\n".join(lines).rstrip() + "\n"


def _caller_call() -> Callable[..., Any]:
    from .tools import Caller

    return Caller.call


def _tool(tool: contract.Tool, word: str, wait: str) -> Iterator[str]:
    beside = ["request_id: str | None = None"] if tool.writes else []
    beside += ["fence: int | None = None"] if tool.name in ("job_complete", "job_release") else []
    beside += ["delay_seconds: float = 0.0"] if tool.name == "job_create" else []
    yield f"    {word}def {tool.name}("
    yield "        self,"
    yield "        *,"
    for name in (*tool.required, *tool.optional):
        field = tool.arguments.model_fields[name]
        kind = "int" if "int" in str(field.annotation) else "str"
        yield f"        {name}: {kind}," if field.is_required() else f"        {name}: {kind} | None = None,"
    for argument in beside:
        yield f"        {argument},"
    yield f"    ) -> contract.{tool.result.__name__}:"
    delays = tool.name == "job_create"
    raised = ", ".join(f"`{errors.REFUSALS[code].__name__}`" for code in (*contract.COMMON_REFUSALS, *tool.refusals))
    facts = "\n".join(
        f"{name}: {field.description}." for name, field in tool.arguments.model_fields.items() if field.description
    )
    yield from _docstring(
        f"{tool.summary}\n\n{textwrap.fill(tool.lifecycle, WIDTH - 12)}\n\n"
        + (f"{facts}\n" if facts else "")
        + ("delay_seconds: not claimable before that time is over; the library's own.\n" if delays else "")
        + ("\n" if facts or delays else "")
        + textwrap.fill(f"Raises {raised}.", WIDTH - 12)
    )
    arguments = ", ".join(f'"{name}": {name}' for name in (*tool.required, *tool.optional))
    passed = [arguments_ for arguments_ in ("request_id", "fence") if any(arguments_ in b for b in beside)]
    yield f"        arguments = {{{arguments}}}"
    yield "        operation = self._caller.typed("
    yield f'            contract.{tool.result.__name__}, "{tool.name}", arguments'
    passed = [f"{name}={name}" for name in passed]
    if delays:
        passed.append("also=delayed(delay_seconds)")
    if passed:
        yield f"            , {', '.join(passed)}"
    yield "        )"
    yield f"        return {wait}self._run(operation)"


def _surface(operations: type, name: str, about: str, asynchronous: bool) -> str:
    prefix, word = ("Async", "async ") if asynchronous else ("", "")
    wait = "await " if asynchronous else ""
    lines = [
        f"class {prefix}{name}:",
        f'    """{about}{", on asyncio" if asynchronous else ""}."""',
        "",
        f"    def __init__(self, operations: {operations.__name__}, run: {prefix}Run) -> None:",
        "        self._operations, self._run = operations, run",
    ]
    lines += ["", *_methods(operations, word, wait)]
    return "\n".join(lines).rstrip() + "\n"


def _methods(operations: type, word: str, wait: str) -> Iterator[str]:
    for method, function in vars(operations).items():
        if not method.startswith("_"):
            yield from (*_method(method, function, word, wait), "")


def _method(name: str, function: Callable[..., Any], word: str, wait: str) -> Iterator[str]:
    signature = inspect.signature(function)
    result = re.sub(r"^Operation\[(.*)\]$", r"\1", str(signature.return_annotation))
    # As text, annotations are quoted and defaults are not to be touched.
    annotated = [re.sub(r": '([^']*)'", r": \1", str(parameter)) for parameter in signature.parameters.values()]
    keywords = [p.kind is p.KEYWORD_ONLY for p in signature.parameters.values()]
    if True in keywords:
        annotated.insert(keywords.index(True), "*")
    shown = f"({', '.join(annotated)}) -> {result}:"
    passed = ", ".join(
        f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name
        for p in signature.parameters.values()
        if p.name != "self"
    )
    yield f"    {word}def {name}{shown}"
    yield from _docstring(inspect.getdoc(function) or "")
    returned = f"{wait}self._run(self._operations.{name}({passed}))"
    yield f"        {returned}" if result == "None" else f"        return {returned}"


def _docstring(text: str) -> Iterator[str]:
    lines = text.splitlines()
    if len(lines) == 1:
        yield f'        """{lines[0]}"""'
        return
    yield f'        """{lines[0]}'
    for line in lines[1:]:
        yield f"        {line}" if line else ""
    yield '        """'


# Tables of the README -------------------------------------------------------------------------------------------


def tools_table() -> str:
    """Render the nine tools."""
    rows = ["| tool | access | arguments | answers |", "|---|---|---|---|"]
    for tool in contract.TOOLS:
        required = [f"**`{name}`**" for name in tool.required]
        optional = [f"`{name}`" for name in tool.optional]
        keys_ = ", ".join(f"`{name}`" for name in tool.result_keys)
        rows.append(f"| `{tool.name}` | {tool.access} | {', '.join(required + optional)} | {keys_} |")
    return "\n".join(rows)


def refusals_table() -> str:
    """Render the closed set of refusals."""
    rows = ["| code | message begins | class | HTTP |", "|---|---|---|---|"]
    for code, kind in errors.TOOL_ERRORS.items():
        rows.append(f"| `{code}` | {kind.words} | `{kind.__name__}` | {kind.http_status} |")
    return "\n".join(rows)


def limits_table() -> str:
    """Render the limits."""
    rows = ["| what | most | counted in |", "|---|---|---|"]
    rows += [f"| {found.meaning} | {found.value:,} | {found.unit} |" for found in contract.LIMITS.values()]
    return "\n".join(rows)


def keys_table() -> str:
    """Render the key dictionary."""
    rows = ["| key, after `shampoo:{profile}:` | type | what it holds |", "|---|---|---|"]
    rows += [f"| `{key.pattern()}` | {key.type} | {key.meaning} |" for key in keys.KEYS]
    return "\n".join(rows)


TABLES = {"tools": tools_table, "refusals": refusals_table, "limits": limits_table, "keys": keys_table}


def with_tables(text: str) -> str:
    """Put fresh tables between their marks."""
    for name, render in TABLES.items():
        begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
        before, mark, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        if mark:
            text = f"{before}{begin}\n{render()}\n{end}{after}"
    return text


def derived() -> dict[Path, str]:
    """Give every derived file with what it should hold."""
    readme = ROOT / "README.md"
    return {
        ROOT / "shampoo_queue" / "facade.py": _formatted(facade()),
        readme: with_tables(readme.read_text("utf-8")),
    }


def _formatted(source: str) -> str:
    import subprocess

    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--stdin-filename",
        str(ROOT / "shampoo_queue" / "facade.py"),
        "-",
    ]
    return subprocess.run(command, input=source, text=True, capture_output=True, check=True, cwd=ROOT).stdout


def write_lua(folder: Path) -> None:
    """Write every composed script, its ``#!lua`` line made a comment, for a linter to read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in scripts.names():
        (folder / f"{name}.lua").write_text(scripts.script(name).plain.text, "utf-8")


def main(arguments: list[str]) -> int:
    """Write the derived files; ``--check`` says which are out of date, ``--lua FOLDER`` writes composed scripts."""
    if "--lua" in arguments:
        write_lua(Path(arguments[arguments.index("--lua") + 1]))
        return 0
    stale = [path for path, text in derived().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is out of date: make generate", file=sys.stderr)
        else:
            path.write_text(derived()[path], "utf-8")
            print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
