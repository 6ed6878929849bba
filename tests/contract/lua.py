"""Read the text of a script far enough to hold its head, its order and its bounds against what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from shampoo_queue import keys, scripts
from shampoo_queue.errors import REFUSALS

HEAD = ("Request", "Reply", "Refuses", "Touches", "Cost", "Again", "Pieces")
CLASSES = ("#!lua", "#!lua flags=allow-oom", "#!lua flags=no-writes")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Commands whose cost does not grow with what they find; a hash that may be read whole is bounded by the contract.
READS = _words(
    "GET GETRANGE STRLEN PTTL EXISTS HGET HMGET HLEN HEXISTS ZSCORE ZCARD ZCOUNT ZRANK XLEN SCARD SISMEMBER TIME"
)
RANGES = _words("ZRANGE XRANGE XREVRANGE HGETALL")
# Reads of what an operator may have put another type of key in place of.
GUARDED = _words("HMGET GET STRLEN")
WRITES = _words(
    "SET DEL UNLINK EXPIRE PEXPIRE INCR INCRBY HSET HDEL HINCRBY ZADD ZREM ZREMRANGEBYSCORE ZINCRBY SADD SREM LPUSH "
    "XADD XDEL XTRIM"
)
WHOLE_HASHES = re.compile(r"(key_principal|key_joined|key_limits|key_waiter|spell)\(")
SMALL = re.compile(r"\d{1,4}|STAR_PROJECTS( - 1)?")

# What Lua and Redis give, and the words of the language.
GIVEN = _words(
    "P KEYS ARGV redis string table math tonumber tostring pairs ipairs unpack type next select "
    "and break do else elseif end false for function if in local nil not or repeat return then true until while"
)

_TOKENS = re.compile(r"--\[\[.*?\]\]|--[^\n]*|('(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")", re.DOTALL)
_FUNCTION = re.compile(r"^local function (\w+)\([^\n]*?\)(?: [^\n]* end$|.*?^end$)", re.DOTALL | re.MULTILINE)


def without_comments(text: str) -> str:
    return _TOKENS.sub(lambda found: found[1] or "", text)


def without_strings(code: str) -> str:
    return _TOKENS.sub("''", code)


def functions(code: str) -> dict[str, str]:
    """Give the functions that a text defines at its margin, by name."""
    return {found[1]: found[0] for found in _FUNCTION.finditer(code)}


def statements(code: str) -> str:
    """Give what a text does by itself, its functions left out."""
    return _FUNCTION.sub("", code)


@dataclass(frozen=True)
class Call:
    """One command that a text sends: its name, unless it is reckoned at run time, and its arguments as written."""

    command: str
    arguments: tuple[str, ...]
    guarded: bool = False

    @property
    def writes(self) -> bool:
        return self.command in WRITES


def calls(code: str) -> Iterator[Call]:
    """Find every ``redis.call`` and ``redis.pcall`` of a text."""
    for found in re.finditer(r"redis\.(p?)call\(", code):
        command, *arguments = _arguments(code[found.end() :])
        literal = re.fullmatch(r"'([A-Z]+)'", command)
        yield Call(literal[1] if literal else "", tuple(arguments), bool(found[1]))


def _arguments(rest: str) -> list[str]:
    """Split what follows an opening bracket at its commas, to the bracket that closes it."""
    depth, parts = 0, [""]
    for token in re.findall(r"'(?:\\.|[^'\\\n])*'|.", rest, re.DOTALL):
        if depth == 0 and token == ")":
            break
        depth += (token in "([{") - (token in ")]}") if len(token) == 1 else 0
        if depth == 0 and token == ",":
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts]


class Move:
    """One script: its head, and its text with the pieces that it names."""

    def __init__(self, name: str, body: str, pieces: Mapping[str, str]) -> None:
        self.name = name
        self.shebang, _, rest = body.partition("\n")
        lines = rest.splitlines()
        self.what = lines[0].removeprefix("-- ") if lines and lines[0].startswith("-- ") else ""
        self.head: dict[str, str] = {}
        last = ""
        for line in lines[1:]:
            if found := re.fullmatch(r"-- (\w+): +(\S.*)", line):
                last = found[1]
                self.head[last] = found[2]
            elif last and (more := re.fullmatch(r"--          (\S.*)", line)):
                self.head[last] += " " + more[1]
            else:
                break
        checks, self.mark, write = rest.partition("\n-- write\n")
        self.body, self.checks, self.write = map(without_comments, (rest, checks, write))
        self.pieces = {piece: without_comments(pieces[piece]) for piece in self.listed("Pieces") if piece in pieces}

    def listed(self, line: str) -> list[str]:
        """Give the names that one line of the head lists."""
        text = self.head.get(line, "")
        return [] if text in ("", "nothing") else text.split(", ")

    @cached_property
    def functions(self) -> dict[str, str]:
        return {name: text for part in (*self.pieces.values(), self.body) for name, text in functions(part).items()}

    def reached(self, code: str) -> str:
        """Give a text with every function that it may run, directly or through another."""
        known, todo, whole = set[str](), [code], ""
        while todo:
            part = todo.pop()
            whole += part + "\n"
            for name in set(re.findall(r"\w+", without_strings(part))) & self.functions.keys() - known:
                known.add(name)
                todo.append(self.functions[name])
        return whole

    @cached_property
    def runs(self) -> str:
        """Everything that a run of the script may execute."""
        pieces = (statements(piece) for piece in self.pieces.values())
        return self.reached("\n".join((*pieces, self.body)))


def refusals(code: str) -> set[str]:
    return set(re.findall(r"\brefuse\('(\w+)'\)", code))


def problems(name: str, body: str, pieces: Mapping[str, str]) -> list[str]:
    """Say everything in which a script's text is not what its head and its class promise."""
    move = Move(name, body, pieces)
    return [*_head(move), *_promises(move), *_order(move), *_bounds(move), *_unknown(move)]


def _head(move: Move) -> Iterator[str]:
    if move.shebang not in CLASSES:
        yield f"the first line is {move.shebang!r}, which is no class"
    if not re.fullmatch(r"[A-Z].*[^.]\.", move.what):
        yield f"the head does not say in one sentence what the move does: {move.what!r}"
    if tuple(move.head) != HEAD:
        yield f"the head has the lines {', '.join(move.head)}"
    if "O(" not in move.head.get("Cost", ""):
        yield "the head states no cost"
    for piece in move.listed("Pieces"):
        if piece not in move.pieces or piece not in scripts.PIECES:
            yield f"there is no piece {piece}"
    if "call" not in move.pieces:
        yield "the piece call names the six arguments with which every move begins"
    for piece, text in move.pieces.items():
        if piece in ("call", "token"):  # they act by themselves
            continue
        elsewhere = "\n".join((*(other for name, other in move.pieces.items() if name != piece), move.body))
        if not _declared(_FUNCTION.sub(_signature, text)) & set(_names(elsewhere)):
            yield f"the piece {piece} is named and not used"


def _signature(function: re.Match[str]) -> str:
    return f"local {function[1]}"


def _promises(move: Move) -> Iterator[str]:
    can, promised = refusals(move.runs), move.listed("Refuses")
    if can != set(promised) or len(promised) != len(set(promised)):
        yield f"it can refuse {sorted(can)}, the head says {sorted(promised)}"
    for code in can:
        if code.lower() not in REFUSALS:
            yield f"no class has the code {code}"
    if len(re.findall(r"\brefuse\b(?!\('[A-Z_]+'\))", move.runs)) > 1:  # its own definition
        yield "it refuses with a code that is not written out"
    touched, promised = set(re.findall(r"\bkey_(\w+)", without_strings(move.runs))), move.listed("Touches")
    if touched != set(promised) or len(promised) != len(set(promised)):
        yield f"it touches {sorted(touched)}, the head says {sorted(promised)}"
    for family in touched - keys.BY_NAME.keys():
        yield f"the table of keys has no {family}"


def _order(move: Move) -> Iterator[str]:
    """Every refusal stands above the first write."""
    reading = move.shebang.endswith("no-writes")
    if reading == bool(move.mark):
        yield "a move that writes has a line `-- write`, one that only reads has none"
    if any(call.writes for call in calls(move.reached(move.checks))):
        yield "it may write before the line `-- write`"
    if reading and any(call.writes for call in calls(move.runs)):
        yield "it writes, although its class says no-writes"
    if not reading and not any(call.writes for call in calls(move.runs)):
        yield "it never writes, although its class says that it may"
    if refusals(move.reached(move.write)) or "error_reply" in move.write:
        yield "it may refuse after the line `-- write`"
    for piece, text in move.pieces.items():
        if any(call.writes for call in calls(statements(text))):
            yield f"the piece {piece} writes by itself"


def _bounds(move: Move) -> Iterator[str]:
    for call in calls(move.runs):
        if call.command not in READS | RANGES | WRITES:
            yield f"it sends {call.command or 'a command that is not written out'}, which no list here allows"
        if call.command == "HGETALL" and not WHOLE_HASHES.match(call.arguments[0]):
            yield f"it reads {call.arguments[0]} whole, which nothing bounds"
        if call.command == "ZRANGE" and "'LIMIT'" not in call.arguments and not _few(*call.arguments[1:3]):
            yield f"its range from {call.arguments[1]} to {call.arguments[2]} has no bound"
        if call.command == "GETRANGE" and call.arguments[2].startswith("-"):
            yield f"its range from {call.arguments[1]} to {call.arguments[2]} has no bound"
        if call.guarded and call.command not in GUARDED:
            yield f"it uses redis.pcall for {call.command}"
        if (
            call.command in ("XRANGE", "XREVRANGE")
            and "'COUNT'" not in call.arguments
            and call.arguments[1] != call.arguments[2]
        ):
            yield f"its range from {call.arguments[1]} to {call.arguments[2]} has no bound"
    for name in re.findall(r"redis\.(\w+)", without_strings(move.runs)):
        if name not in ("call", "pcall", "error_reply"):
            yield f"it uses redis.{name}"
    if re.search(r"\b(os|math\.random|io|loadstring)\b", without_strings(move.runs)):
        yield "it reads something beside its arguments, its keys and its clock"
    read = sum(call.command == "TIME" for call in calls("\n".join((*move.pieces.values(), move.body))))
    if read != ("clock" in move.pieces):
        yield f"it reads the time {read} times"


def _unknown(move: Move) -> Iterator[str]:
    """A name that nothing declares reads as nil, and fails only when a run comes by."""
    known = _declared(move.runs) | GIVEN | scripts.LIMITS_IN_LUA.keys()
    for name in sorted(set(_names(move.runs)) - known):
        if not name.startswith("key_"):
            yield f"nothing declares {name}"


def _names(code: str) -> Iterator[str]:
    """Give the names that a text uses: not the fields of tables, nor their keys where they are built."""
    code = without_strings(code)
    for found in re.finditer(r"(?<![\w.])[A-Za-z_]\w*|(?<=\.\.)[A-Za-z_]\w*", code):
        before, after = code[: found.start()].rstrip(), code[found.end() :].lstrip()
        key = before.endswith(("{", ",")) and after.startswith("=") and not after.startswith("==")
        if not key and not before.endswith(":"):
            yield found[0]


def _declared(code: str) -> set[str]:
    found = re.findall(
        r"\bfunction(?: (\w+))?\(([^)]*)\)|\blocal (?!function)([\w, ]+)|\bfor ([\w, ]+?) (?:=|in)",
        without_strings(code),
    )
    return set(re.findall(r"\w+", " ".join(part for parts in found for part in parts)))


def _few(start: str, stop: str) -> bool:
    page = re.escape(start) + r" \+ \d{1,3}"
    return start == stop or bool(SMALL.fullmatch(start) and SMALL.fullmatch(stop)) or bool(re.fullmatch(page, stop))
