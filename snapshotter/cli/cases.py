"""`replay`, `fold` and `classify`: the engine's pure functions, over files. No store is touched.

They let another implementation, or a person with a stream that looks odd, ask what this one makes of it.
Input is read exactly: integers of any size, surrogate halves as escaped; NaN and its like are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import click

from snapshotter.core.classify import NotResumable, classify_resume
from snapshotter.core.contract import fold_case
from snapshotter.core.replay import replay as replay_line
from snapshotter.core.snapshot import decode
from snapshotter.core.values import loads
from snapshotter.errors import Corrupt, InvalidValue
from streams.packing import text_field

from .output import count, dumps, emit, field, in_words, json_option
from .problems import GAP, REFUSED

Record = dict[str, Any]


@click.command(
    short_help="Chunks in, the client's message out.",
    epilog="\b\nExample:\n"
    '  echo \'{"chunks":[{"type":"text-start","id":"t"},{"type":"text-delta","id":"t","delta":"hi"}]}\' \\\n'
    "    | snapshotter replay --json\n"
    "  jq -sc '{chunks: .}' answer.jsonl | snapshotter replay --strict",
)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--strict", is_flag=True, help="Stop a stream at the first chunk that breaks a rule.")
@json_option
@click.pass_context
def replay(ctx: click.Context, file: BinaryIO, strict: bool, as_json: bool) -> None:
    """Show the message that a client makes of a stream of chunks.

    FILE (default: stdin) holds one stream a line: {"chunks": […], "message"?: the message to continue}. For
    each, one line {"message", "report"}; with --strict {"error", "at", "rule"} for a stream that breaks a
    rule, which is an answer too: the exit code stays 0. A line that is not of this form gives {"error",
    "at": null, "rule": "bad-input"}, and exit code 2 at the end.
    """
    refused = False
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        given: Any = None
        try:
            given = json_object(line)
            result = replay_line(given, strict=strict)
        except InvalidValue as error:
            refused = True
            result = {"error": f"{error}{_hint(given)}", "at": None, "rule": "bad-input"}
        if as_json:
            emit(result)
        else:
            _tell_replay(result, number)
    if refused:
        ctx.exit(REFUSED)


def _hint(given: Any) -> str:
    """For a file that holds a chunk a line, as `record` reads it."""
    if not isinstance(given, dict) or "chunks" in given or "type" not in given:
        return ""
    return "; this looks like a chunk, make one line of a stream's chunks with: jq -sc '{chunks: .}' FILE"


def _tell_replay(result: dict[str, Any], number: int) -> None:
    if "error" in result:
        told, at = str(result["error"]), f"chunk {result['at']}: "
        if result["at"] is not None and not told.startswith(at):
            told = at + told
        field("error", f"line {number} ({result['rule']}): {told}")
        return
    field("message", dumps(result["message"]).decode())
    for line in result["report"]:
        field("report", f"{line['code']} at chunk {line['at']}: {line['detail']}")


@click.command(
    short_help="Records in, what a boot returns out.",
    epilog="\b\nExample:\n  snapshotter log ./data chat-42 in > in.jsonl\n"
    "  snapshotter log ./data chat-42 out > out.jsonl\n"
    "  snapshotter fold --in in.jsonl --out out.jsonl --json | jq .resume",
)
@click.option("--in", "incoming", type=click.File("rb"), required=True, help="Records of the in log.")
@click.option("--out", "outgoing", type=click.File("rb"), required=True, help="Records of the out log.")
@click.option("--snapshot", type=click.File("rb"), help="A snapshot to start from.")
@json_option
@click.pass_context
def fold(
    ctx: click.Context, incoming: BinaryIO, outgoing: BinaryIO, snapshot: BinaryIO | None, as_json: bool
) -> None:
    """Show what a boot makes of records: history, pending, what to do first.

    The files hold JSON lines, unpacked or packed, in any order; headers of segments are passed over. Missing
    records give {"error":"gap","log","missing":[first, last]} and exit code 3.
    """
    document = decode(snapshot.read(), key=snapshot.name) if snapshot is not None else None
    result = fold_case(records(incoming), records(outgoing), document)
    if as_json:
        emit(result)
    else:
        _tell_fold(result)
    if result.get("error") == "gap":
        ctx.exit(GAP)


def _tell_fold(result: dict[str, Any]) -> None:
    """The same in words; the whole of it is what --json is for."""
    if "error" in result:
        first, last = result["missing"]
        field("error", f"gap: records {first} to {last} of the {result['log']} log are missing")
        return
    messages, partial, cursor = result["messages"], result["partial"], result["cursor"]
    field("messages", ", ".join(f"{m.get('role')} {m.get('id')}" for m in messages) or "none")
    if partial is not None:
        field("partial", f"{partial.get('id')}, {count(len(partial['parts']), 'part')}")
    field("resume", in_words(result["resume"]))
    field("pending", "; ".join(_owed(item) for item in result["pending"]) or "nothing")
    field("spent", _list(result["spent"]))
    field("unfinished", _list(f"{c['toolCallId']} of {c['toolName']}" for c in result["pendingToolCalls"]))
    field("state", _list(result["state"]))
    field("context", "compacted" if result["context"] is not None else "as it is")
    field("cursor", f"in {cursor['in']}, out {cursor['out']}")
    for line in result["report"]:
        field("report", f"{line['code']} at {line['id']}: {line['detail']}")


def _owed(item: dict[str, Any]) -> str:
    return f"{item['kind']}, input {_list(item['ids'])}"


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "nothing"


@click.command(
    short_help="Histories in, how each can be resumed out.",
    epilog="\b\nExample:\n"
    '  echo \'[{"role":"user","content":"hi"}]\' | snapshotter classify --json\n'
    "  snapshotter history ./data chat-42 --json | jq -sc . | snapshotter classify",
)
@click.argument("file", type=click.File("rb"), default="-")
@json_option
@click.pass_context
def classify(ctx: click.Context, file: BinaryIO, as_json: bool) -> None:
    """Say where a history can be picked up again.

    FILE (default: stdin) holds one history a line: a list of messages, or {"messages": […], "turn"?: how the
    last one's turn ended}. Messages are UIMessages, or plain ones with role, content, tool_calls and stop.
    For each, one line {"kind", "description", "unanswered"}, or {"error": reason} where there is nothing to
    resume; "bad_input" for a line that is no history, and exit code 2.
    """
    refused = False
    for line in file:
        if not line.strip():
            continue
        result, told = _classified(line)
        refused = refused or result.get("error") == "bad_input"
        if as_json:
            emit(result)
        else:
            name = "kind" if "kind" in result else "error"
            field(name, f"{result[name]}: {told}")
    if refused:
        ctx.exit(REFUSED)


def _classified(line: bytes) -> tuple[dict[str, Any], str]:
    """The answer for one line, and a sentence for a person."""
    try:
        case = loads(line)
        messages, turn = (case.get("messages"), case.get("turn")) if isinstance(case, dict) else (case, None)
        if not isinstance(messages, list):
            return {"error": "bad_input"}, "a list of messages is needed"
        found = classify_resume(messages, turn)
    except NotResumable as error:
        return {"error": error.reason}, str(error)
    except InvalidValue as error:
        return {"error": "bad_input"}, str(error)
    return found.to_json(), found.description


def records(file: BinaryIO) -> list[Record]:
    """The records of a file. Raises Corrupt naming the line."""
    return list(_parsed(file, file.name))


def _parsed(lines: Iterable[bytes], name: str) -> Iterable[Record]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json_object(line)
        except InvalidValue as error:
            raise _no_record(name, number, error) from None
        if "crc" in record and "id" not in record:
            continue
        problem = _problem(record)
        if problem:
            raise _no_record(name, number, problem)
        yield record


def _no_record(name: str, number: int, why: object) -> Corrupt:
    error = Corrupt(f"{name}, line {number}: {why}", key=name)
    error.add_note("a record a line is needed, as `snapshotter log URL SESSION in` (or `out`) prints them")
    return error


def _problem(record: Record) -> str | None:
    """What keeps a line from being a record."""
    number, cuts = record.get("id"), record.get("cuts")
    if type(number) is not int or number < 1:
        return "a record needs an id from 1 on"
    if cuts is None:
        return None
    field_name = text_field(record.get("chunk"))
    whole = isinstance(cuts, list) and bool(cuts) and all(type(cut) is int for cut in cuts)
    if not whole or field_name is None or cuts != sorted(cuts) or cuts[0] < 0:
        return "its cuts do not fit its text"
    return None if cuts[-1] == len(record["chunk"][field_name]) else "its cuts do not fit its text"


def json_object(line: bytes | str) -> dict[str, Any]:
    """The JSON object that a text holds. Raises InvalidValue."""
    value = loads(line)
    if not isinstance(value, dict):
        raise InvalidValue("a JSON object is needed")
    return value
