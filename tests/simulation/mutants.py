"""Engines that are broken on purpose, one way each: what a simulation is worth shows in what it catches.

`MUTANTS` is the list; `mutating` says how an edit is applied, `test_mutants` that each is caught. As a script
it prints a table: the mutant, what it breaks, the rule that caught it, after how many schedules and calls.

    python tests/simulation/mutants.py

Left out, since no user could tell the difference:

* A driver that repeats its own creates, alone: the engine reads the nonce of every 412, so a success that is
  reported as a lost race is found to be its own. Here it comes with the nonce not read (`driver-retries`).
* A writer that may be used again after it said Unknown or Fenced: its batch still stands first, so the next
  write is for the same place under a new nonce, and the store refuses it or it is the first to land. What
  hurts is to go on as if the place had been won (`unknown-is-written`, `no-fence`).
* A turn-complete that does not end its segment: it is flushed at once, and that seals the segment.
* Epochs that do not grow: no rule of these worlds rests on them; a deleted session's return does (FORMAT.md).
"""

from __future__ import annotations

from typing import Any

import click
from breaking import append_elsewhere, keep_plan, put_with_retries, save_ahead, whole_lines
from hunting import table
from mutating import Edit, Mutant

from snapshotter import blocks, checkpoints, incoming, loading, saving, sending, values
from snapshotter.chunkwriter import ChunkWriter
from snapshotter.claiming import Claiming
from snapshotter.core import budget, cleanup, edits, ledger, moves, queue, snapshot
from snapshotter.core.chain import Chain
from snapshotter.core.fold import Fold
from snapshotter.core.inputs import InputLog
from snapshotter.core.openturn import OpenTurn
from snapshotter.loading import Loaded
from snapshotter.maintenance import compacting, copying, deleting, redacting, sweeping, trimming
from snapshotter.scribe import Scribe
from snapshotter.session import Session
from snapshotter.watch import Watch
from streams import codec, log, packing
from streams.errors import Unknown
from streams.store import Store
from streams.writer import Writer


def _mutant(name: str, breaks: str, *changes: tuple[Any, str, str], helpers: tuple[Any, ...] = ()) -> Mutant:
    return Mutant(name, breaks, tuple(Edit(*change) for change in changes), helpers)


_CREATE = "self._store.put_once(key, data, if_absent=True, nonce=nonce, deadline=self._patience())"
_PUT = (
    "self.bucket.put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)",
    "put_with_retries(self.bucket, key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)",
)

STREAMS = [
    _mutant(
        "no-fence",
        "a writer that lost its place appends at the next free one",
        (
            Writer._write,
            'raise self._fenced(f"another writer holds place {first}") from None',
            "return append_elsewhere(self, batch)",
        ),
        helpers=(append_elsewhere,),
    ),
    _mutant(
        "412-is-ours",
        "every 412 counts as an earlier attempt of one's own",
        (Store._find_own, "head.nonce == nonce", "True"),
    ),
    _mutant(
        "412-is-lost",
        "the nonce is not compared: one's own create, whose reply was lost, counts as another's",
        (Store._find_own, "head.nonce == nonce", "False"),
    ),
    _mutant(
        "404-settles",
        "after a time-out a 404 proves that nothing was written, so the next attempt is a new write",
        (Store.put_once, "nonlocal throttled_only", "nonlocal throttled_only, nonce"),
        (
            Store.put_once,
            "throttled_only = throttled_only and isinstance(error, Throttled)",
            "throttled_only = False\nnonce = nonce if self.bucket.head(key) else self.clock.token()",
        ),
    ),
    _mutant(
        "driver-retries",
        "the driver repeats an unanswered create by itself, and a first 412 is believed",
        (Store.put_once, "throttled_only = True", "throttled_only, asked = True, []"),
        (Store.put_once, "self._count_put(data)", "asked.append(self._count_put(data))"),
        (Store.put_once, *_PUT),
        (
            Store.put_once,
            "found = self._find_own(key, data, nonce, sole)",
            "if len(asked) == 1:\n    raise\nfound = self._find_own(key, data, nonce, sole)",
        ),
        helpers=(put_with_retries,),
    ),
    _mutant(
        "sleeper-does-not-look",
        "a writer that slept for hours takes a place that was tidied away for free",
        (Writer._look_again, "if before is None or abs(date - before) <= HALF_AGE_MS:", "if True:"),
    ),
    _mutant(
        "unknown-is-written",
        "a segment that was never answered counts as durable",
        (
            Writer._write,
            "except PreconditionFailed:",
            'except Unknown:\n    written = Written("", None)\nexcept PreconditionFailed:',
        ),
        helpers=(Unknown,),
    ),
    _mutant("flush-returns-early", "`flush` does not wait", (Writer.flush, "self._await(last)", "pass")),
    _mutant(
        "commit-returns-early",
        "turn-start and turn-complete are acknowledged before they are durable",
        (Writer.append_batch, "self._await(last)", "pass"),
    ),
    _mutant(
        "no-heartbeat",
        "the lease is not kept while a tool is at work",
        (Writer._beat, "self._heartbeat() if self._may_beat() else None", "None"),
    ),
    _mutant(
        "segment-overwritten",
        "out segments are written without a condition",
        (Writer._write, _CREATE, "self._store.put(key, data, nonce=nonce)"),
    ),
    _mutant(
        "input-overwritten",
        "in segments are written without a condition",
        (
            log.append_input,
            "store.put_once(key, data, if_absent=True, nonce=nonce, deadline=max(left, 0.0))",
            "store.put(key, data, nonce=nonce)",
        ),
    ),
    _mutant(
        "next-place-unread",
        "a sender that lost its place takes the next one without reading what won",
        (log.append_input, "dead: set[int] = set()", "dead: set[int] = set()\nlost = False"),
        (
            log.append_input,
            "not in dead]) if check else None",
            "not in dead]) if check and not lost else None",
        ),
        (
            log.append_input,
            "clock.sleep(0.02 * clock.jitter())",
            "lost = True\nclock.sleep(0.02 * clock.jitter())",
        ),
    ),
    _mutant(
        "chain-unchecked",
        "nobody compares `prev` with the nonce before",
        (log.link, '(header.prev or "") != nonce', "False"),
    ),
    _mutant(
        "gap-is-history",
        "missing records of the out log are passed over",
        (log.link, 'raise _gap(log, sid, last + 1, first - 1, "are missing")', "pass"),
        (
            log.link,
            "known = nonce or last == 0",
            "known = first == last + 1 and (nonce or last == 0)",
        ),
        (
            Fold.apply,
            "if number != self.cursor + 1:",
            "self.cursor = max(self.cursor, number - 1)\nif number != self.cursor + 1:",
        ),
    ),
    _mutant(
        "input-gap-is-history",
        "missing inputs are passed over",
        (incoming.read_inputs, "raise InputGone(sid, number)", "continue"),
        (Fold.feed, "if hole is not None:", "if False:"),
    ),
    _mutant(
        "segment-crc-unchecked",
        "the checksum of a segment's records is not looked at",
        (codec.decode_segment, "crc32(body) != header.crc", "False"),
    ),
    _mutant(
        "header-crc-unchecked",
        "the checksum of a segment's header is not looked at",
        (codec._decode_header, "crc32(line[: line.rfind(_HCRC)]) != hcrc", "False"),
    ),
    _mutant(
        "short-read-accepted",
        "a segment that is cut off counts as far as its lines are whole",
        (codec.decode_segment, "body = data[end:]", "header, body = whole_lines(header, data[end:])"),
        helpers=(whole_lines,),
    ),
    _mutant(
        "unpack-off-by-one",
        "the deltas of a packed run get the ids of their neighbours",
        (packing.unpack_after, "enumerate(cuts, first)", "enumerate(cuts, first + 1)"),
    ),
]

SNAPSHOTS = [
    _mutant(
        "cursor-from-newest-input",
        "the snapshot's in cursor is the newest input that was read, not the newest that is applied",
        (snapshot.encode, "str(fold.inputs.applied_upto)", "str(fold.inputs.last)"),
    ),
    _mutant(
        "one-cursor",
        "`inApplied` is ignored: one cursor for what is done in order and what is done out of it",
        (snapshot.known_inputs, 'document.get("inApplied") or ()', "()"),
    ),
    _mutant(
        "snapshot-before-commit",
        "the snapshot is saved before what it holds is in the log",
        (
            Scribe.end_segment,
            "self.commit(bodies, flush=Flush.NOW, end_segment=True)",
            "save_ahead(self, bodies)\nself.commit(bodies, flush=Flush.NOW, end_segment=True)",
        ),
        helpers=(save_ahead,),
    ),
    _mutant(
        "snapshot-unconditional",
        "the snapshot is put without a condition, over a newer one too",
        (
            saving.save,
            "store.put_once(key, data, if_absent=True, nonce=nonce)",
            "store.put(key, data, nonce=nonce)",
        ),
        (
            saving.save,
            "store.put_once(key, data, if_match=match_of(etag, etags), nonce=nonce)",
            "store.put(key, data, nonce=nonce)",
        ),
    ),
    _mutant(
        "unread-snapshot-overwritten",
        "a snapshot that could not be read is replaced",
        (Scribe.save, "if not self._readable:", "if False:"),
    ),
    _mutant(
        "corrupt-is-absent",
        "a snapshot that cannot be read counts as none",
        (loading._document, "return None, problem", "return None, None"),
    ),
    _mutant(
        "snapshot-crc-unchecked",
        "the snapshot's checksum is not looked at",
        (snapshot.is_whole, "return found is None or", "return True or"),
    ),
    _mutant(
        "snapshot-over-log",
        "a snapshot counts as the whole truth, however stale: the tail is not read",
        (
            loading._loaded,
            "wants_tail = bool(first.out.above(cursor.id)) or snapshot.problem is not None",
            "wants_tail = snapshot.document is None and bool(first.out.entries)",
        ),
    ),
    _mutant(
        "input-not-reread",
        "the in log is not read again when the out log names a newer input",
        (loading._fold, 'if gap.log != "in" or attempt == _ATTEMPTS:', "if True:"),
    ),
    _mutant(
        "receipt-is-enough",
        "a boot with a receipt never lists the in log: what came since is not seen",
        (loading._loaded, "if not listed_in:", "if False:"),
        (loading._loaded, "if wants_tail and not listed_in:", "if False:"),
    ),
]

WORKERS = [
    _mutant(
        "lease-ignored",
        "a boot never finds anybody at work",
        (Loaded.holder, "if not held or not self.lease:", "if True:"),
    ),
    _mutant(
        "claim-ignores-lease",
        "a boot that claims first does not wait for who is at work",
        (Claiming._claim, "if header.lease and left > 0 and", "if False and"),
    ),
    _mutant(
        "old-plan",
        "a worker that lost the place of its claim goes on with the plan it had",
        (Session._next_turn, "self._take(self._reload())", "keep_plan(self)"),
        helpers=(keep_plan,),
    ),
    _mutant(
        "not-looked-again",
        "after a turn the in log is not looked at: what arrived meanwhile is left to nobody",
        (Session._step, "if not self._looked:", "if False:"),
    ),
    _mutant(
        "stop-not-watched",
        "a stop that comes while its turn runs is not noticed",
        (Watch._take, 'if record.get("kind") == "stop" and', "if False and"),
    ),
    _mutant(
        "stop-forgotten",
        "a stop that came before a worker died does not count for the next one",
        (queue._stop, "if turn is not None and concerns(", "if False and concerns("),
    ),
    _mutant(
        "tool-not-durable",
        "a tool call, and its result, return from `write` before they are durable",
        (
            ChunkWriter._write_other,
            'barrier = kind in FLUSH_POINTS or (kind in _RESULTS and chunk.get("preliminary") is not True)',
            "barrier = False",
        ),
    ),
    _mutant(
        "partial-dropped",
        "the next attempt begins with nothing",
        (
            OpenTurn.begin_attempt,
            "message = cleaned.message",
            'message, cleaned.seed = {**cleaned.message, "parts": []}, 0',
        ),
    ),
    _mutant(
        "settled-tool-again",
        "a retry does not keep the steps that hold results: the tool runs again",
        (
            cleanup.kept_for_retry,
            "end = max((b for a, b in _steps(parts, seed) if _holds_settled(parts, a, b)), default=seed)",
            "end = seed",
        ),
    ),
    _mutant(
        "finish-is-the-end",
        "a `finish` chunk in the log counts as turn-complete",
        (
            Fold._other,
            "turn.note(kind, chunk)",
            """turn.note(kind, chunk)
if kind == "finish" and not self.strict:
    self._close("completed", {})""",
        ),
    ),
    _mutant(
        "dispatched-twice",
        "an input that the open turn has taken is still owed",
        (queue.sort_out, "owed(fold.open.inputs if fold.open is not None else ())", "owed()"),
    ),
    _mutant(
        "answered-stays-owed",
        "a turn's end does not mark its newest input as applied",
        (Fold._close, "self.inputs.apply(turn.inputs)", "self.inputs.apply(turn.inputs[:-1])"),
    ),
    _mutant(
        "spent-not-recorded",
        "inputs that are spent without a turn are never written off",
        (moves.spending, "[applied(plan.spent)] if plan.spent else []", "[]"),
        (moves.next_step, '"spend" if plan.spent else "idle"', '"idle"'),
    ),
    _mutant(
        "duplicate-answered",
        "the fold does not know an input that repeats an earlier one",
        (InputLog._match, "same = [number for number, body in near if body == digest]", "same = []"),
    ),
    _mutant(
        "duplicate-appended",
        "a sender does not look for its key among the newest inputs",
        (sending.append, "check=check if own_keys else None", "check=None"),
    ),
    _mutant(
        "edit-keeps-the-rest",
        "an edit replaces its message and keeps what followed",
        (edits._cut_for_edit, "fold.chain.cut(position)", "fold.chain.splice(position, position + 1)"),
    ),
    _mutant(
        "budget-never-ends",
        "nothing is ever given up",
        (budget._reason, "found.interruptions >= limits.max_interrupted_attempts", "False"),
        (budget._reason, "found.work > limits.max_recovery_work", "False"),
        (budget._reason, "found.interruptions >= 2 and", "False and"),
        (budget.evaluate, "strikes > limits.max_attempts", "False"),
    ),
    _mutant(
        "no-pause",
        "a further attempt begins at once",
        (budget.evaluate, "if power else 0", "if False else 0"),
    ),
    _mutant(
        "give-up-forgets",
        "a turn that is given up loses its partial answer",
        (moves.exhausting, "given_up(found, told)", '{**given_up(found, told), "keep": False}'),
    ),
    _mutant(
        "claim-not-counted",
        "a death while loading, announced by a claim, counts for nothing",
        (ledger.Ledger.claimed, "return sum(", "return 0 * sum("),
    ),
]

KEEPING = [
    _mutant(
        "gc-by-own-clock",
        "gc trusts its own clock, which is two days ahead",
        (sweeping._old, "shelf.date_ms)", "bench.store.clock.now_ms())"),
    ),
    _mutant(
        "gc-reads-first",
        "gc reads what is named before it lists what there is",
        (sweeping._gc, "shelves = {", "early = bench.snapshot()\nshelves = {"),
        (sweeping._gc, "stored = bench.snapshot()", "stored = early"),
    ),
    _mutant(
        "gc-opens-what-it-listed",
        "gc opens only those blocks that were there when it listed them",
        (
            sweeping._unnamed,
            "[found for _, found in stored]",
            (
                '[{"blocks": [row for row in found.get("blocks") or () if row["key"].encode()'
                ' in map(_name, shelves["blocks"].entries)]} for _, found in stored]'
            ),
        ),
    ),
    _mutant(
        "block-name-again",
        "a block is named after its content alone: another sealing of the same has the same name",
        (blocks.put, "nonce = store.clock.token()", 'nonce = "once"'),
    ),
    _mutant(
        "trim-past-checkpoint",
        "a trim deletes what is old, whether the checkpoint covers it or not",
        (
            trimming._trim,
            "_doomed(bench, places, out_date_ms, cut, keep)",
            "_doomed(bench, places[:-1], out_date_ms, keys.MAX, keep)",
        ),
    ),
    _mutant(
        "trim-cuts-newest-turn",
        "a trim leaves nothing of the newest turn that it covers",
        (
            trimming._trim,
            "_doomed(bench, places, out_date_ms, cut, keep)",
            "_doomed(bench, places, out_date_ms, cursor_of(base.document) + 1, keep)",
        ),
    ),
    _mutant(
        "compact-newest-turn",
        "a compaction takes the newest turn, too",
        (compacting.settled, "waiting.append(current)", "yield current"),
    ),
    _mutant(
        "fence-swept",
        "gc sweeps the fence of a deletion with what is below it",
        (sweeping._emptied, "for place in places[:-1]:", "for place in places:"),
        (
            sweeping._emptied,
            'int(document.get("lastOutFirst") or 0)',
            'int(document.get("lastOutFirst") or 0) + 1',
        ),
    ),
    _mutant(
        "block-not-rewritten",
        "a block in which a message has changed stays as it is",
        (Chain.set, "span.dirty = True", "pass"),
    ),
    _mutant(
        "window-is-all",
        "what a window does not hold is not there: nobody asks for more",
        (Chain.find, "if self.partial and", "if False and"),
    ),
    _mutant(
        "value-after-record",
        "a large message is stored after the record that names it",
        (
            values.moved,
            "(put(store, sid, data), data)",
            '({"key": name_of(data, store.clock.token()), "bytes": len(data)}, data)',
        ),
    ),
    _mutant(
        "names-unseen-snapshot",
        "a checkpoint takes over blocks that the snapshot which it replaces does not name",
        (saving._may_replace, "if not named(document).issuperset(names):", "if False:"),
    ),
    _mutant(
        "delete-without-fence",
        "a deletion says so in the snapshot alone",
        (
            deleting._delete,
            "fence, spent = _write_fence(bench, fold, position, date_ms)",
            "fence, spent = position, fold.inputs.last",
        ),
    ),
    _mutant(
        "redact-forgets-copies",
        "a redaction leaves old blocks, values and checkpoints",
        (redacting._redact, "_forget(bench, listed, targets, erased)", "pass"),
    ),
    _mutant(
        "redact-forgets-segments",
        "a redaction leaves the logs as they are",
        (redacting._redact, "erased |= changes.write(bench)", "break"),
    ),
    _mutant(
        "redacted-not-said",
        "the log does not say of a message that is owed that it is redacted",
        (
            edits.edit_history,
            "fold.inputs.redact(named)",
            "pass",
        ),
    ),
    _mutant(
        "redaction-not-announced",
        "the in log does not say which inputs a redaction writes anew",
        (redacting._take_over, "[_announce(bench, session, changes)] if changes.inputs else []", "[]"),
    ),
    _mutant(
        "copy-not-looked-at-again",
        "a checkpoint is written, and nobody looks whether the snapshot still names what it names",
        (copying.put_copy, " and is_named(document, bench.snapshot())", ""),
    ),
    _mutant(
        "gc-lists-copies-first",
        "gc lists the checkpoints before it reads the snapshot",
        (
            sweeping._gc,
            "logs = {which:",
            "early = _shelf(bench, keys.checkpoints_prefix(bench.sid), strange)\nlogs = {which:",
        ),
        (
            sweeping._gc,
            '["checkpoints"] = _shelf(bench, keys.checkpoints_prefix(bench.sid), strange)',
            '["checkpoints"] = early',
        ),
    ),
    _mutant(
        "below-a-fence-counts",
        "what stands below a hole and a deletion counts as the log's beginning",
        (checkpoints.leftovers, "not is_covered(store, sid, behind.first)", "True"),
    ),
]

MUTANTS = [*STREAMS, *SNAPSHOTS, *WORKERS, *KEEPING]


@click.command()
@click.option("--seeds", default=0, help="Look for the first of so many seeds that catches each, too.")
def main(seeds: int) -> None:
    """Hunt every mutant; a Markdown table."""
    for line in table(MUTANTS, seeds):
        click.echo(line)


if __name__ == "__main__":
    main()
