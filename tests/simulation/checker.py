"""The judge: what was acknowledged, against what is shown and what is stored.

Knows nothing of the engine: it is fed a journal of plain dicts, and at the end the stored bytes. The same
judge serves the simulation and the drills with real processes, whose journals are JSON lines.

    checker = Checker()
    checker.see({"t": 12.5, "who": "w3", "what": "sent", "session": "s1", …})     in the order of time
    checker.judge(objects)                                                         key → bytes
    checker.violations                                                             [Violation(rule, detail)]

Every event has `t` (seconds; reads compare it), `who` (a process), `what`, `session`. By `what`:

    send         about to send. kind (message, edit, approval, result, stop, regenerate), token (the user
                 message's own id; for the others a key), text, target (the id, or token, of the user
                 message that is meant: of an edit, a stop, a regenerate)
    sent         acknowledged: kind, token, id (the in id)
    send-failed  kind, token: it may be there or not
    booted       since (when the reading began), messages; whole: False for a window of the history;
                 tail: the ids from where on none is missing
    history      since, messages; final: True when everything has been answered and nobody is at work
    busy, fenced nothing more
    model-call   turn, attempt, inputs (in ids of its turn), question (user message id), answer (a new token)
    tool-run     call ("question/tool"), run (a new token, which the output {"run": …} holds)
    durable      question, words (all words of this answer so far), id (out id), runs (outputs so far)
    turn-ended   turn, attempt, status, inputs, question, fin: the answer's last word, or None
    acted        inputs of an action whose end was acknowledged
    left         how: ok, busy, fenced, error, signal, deadline, killed …: the worker ended
    error        type (the class), typed: whether it is of the package's own tree

and what somebody does who tidies up: see `lives`.

*Tokens.* A user message's id is its token. A model quotes it in every word: `question~answer.0`,
`question~answer.1` … and last `question~answer.fin`; an answer's words come in order. So a word says whose
it is, and a bit that flipped makes it nobody's. A tool whose name begins with `once` is one that a model
would never call twice, whatever it is told.

Why a rule is what it is, is said where it stands.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from casebook import Call, Case, Event, Sent
from lives import REDACTED, Lives
from pieces import Broken, Record, deletions_of, document_of, history_of
from stored import SEALED, WORD, Story, Turn, outputs_of, story_of, words_of

INTERRUPTIONS = 5
"""SEMANTICS.md, section 5: attempts of one incident that may end by death or by an error."""
HEEDED = 12.0
"""Seconds after which an acknowledged stop has been heeded, where nothing goes wrong."""
LOOKS_BACK = 120.0
"""Seconds for which a sender looks for what it may have sent before."""
POLITE = ("signal", "deadline", "cancelled", "ok")
"""Ends of a worker that count for nothing."""
DAMAGED = ("Damaged", "Corrupt", "Gap", "NewerVersion")
RETRYABLE = (
    "Retryable",
    "Vanished",
    "Unreachable",
    "Throttled",
    "Unknown",
    "Fenced",
    "Busy",
    "Deadline",
    "Stalled",
)


@dataclass(frozen=True)
class Violation:
    """A broken promise: the rule's name, and where it was seen."""

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


class Checker(Lives):
    """See the module. `damage`: stored or transmitted bytes may be bad, so that Corrupt and Gap are right
    answers, and what is damaged at rest (`rotten`: its keys) is not judged. `calm`: nothing goes wrong and
    nobody dies, so every turn costs one model call. `allowed`: further types of errors that are right.
    `processes`: these are real, and can be stopped or killed between what happens and their telling it. So
    what is told of an attempt holds only while nobody else can have begun another, and a sender may learn
    late of a place that it was given long ago. `tidied`: somebody tidies up, so the raw logs are read as
    `pieces` says."""

    def __init__(
        self,
        *,
        damage: bool = False,
        calm: bool = False,
        allowed: Iterable[str] = (),
        interruptions: int = INTERRUPTIONS,
        strict: bool = False,
        processes: bool = False,
        jumps: bool = False,
        tidied: bool = False,
    ) -> None:
        self.violations: list[Violation] = []
        self.tidied = tidied
        self.rotten: set[str] = set()
        self._damage = damage
        self._calm = calm
        # A reply that is cut to nothing reads as what a deletion leaves.
        self._allowed = {*RETRYABLE, *allowed, *((*DAMAGED, "Missing") if damage else ())}
        self._interruptions = interruptions
        self._strict = strict
        self._processes = processes
        self._jumps = jumps
        self._cases: defaultdict[str, Case] = defaultdict(Case)
        self.seen: Counter[str] = Counter()

    def see(self, event: Event) -> None:
        """Take in one event, in the order of time."""
        self.seen[event["what"]] += 1
        found = getattr(self, "_" + event["what"].replace("-", "_"), None)
        if found is not None:
            found(self._cases[event.get("session", "")], event)

    def _blame(self, rule: str, detail: str) -> None:
        self.violations.append(Violation(rule, detail))
        if self._strict:
            raise AssertionError(f"{rule}: {detail}")

    # -- senders ------------------------------------------------------------------------------------------

    def _send(self, case: Case, event: Event) -> None:
        if event["token"] not in case.sends:
            case.sends[event["token"]] = Sent(
                event["kind"], event.get("text"), event.get("target"), event["t"], event["t"]
            )
        case.sends[event["token"]].tried = event["t"]

    def _sent(self, case: Case, event: Event) -> None:
        send, number = case.sends[event["token"]], event["id"]
        if case.ids.setdefault(number, event["token"]) != event["token"]:
            self._blame("one place for two", f"input {number}: {case.ids[number]}, {event['token']}")
        if send.acked is None:
            send.acked, send.id = event["t"], number
        elif case.may_be_closed() and number > (send.id or 0):
            send.id = number  # what was sent before a deletion is gone: it is another one

    # -- workers ------------------------------------------------------------------------------------------

    def _model_call(self, case: Case, event: Event) -> None:
        case.text.pop(event["question"], None)  # an attempt may begin its text anew
        for number in event["inputs"]:
            # A turn whose end was acknowledged has answered its inputs for good.
            if case.done.get(number, (math.inf, 0)) < (event["turn"], event["attempt"]):
                self._blame("answered again", f"model call for input {number}, which was answered: {event}")
        incident = min(event["inputs"], default=0)
        call = Call(event["who"], event["question"], incident, event["t"])
        case.calls[event["answer"]] = call
        paid = [c for c in case.calls.values() if c.incident == incident]
        lost = [c for c in paid if c is not call and c.ended not in (*SEALED, *POLITE)]
        if len(lost) >= self._interruptions:
            self._blame("over the budget", f"{len(lost)} attempts were lost before {event}")
        if self._calm and len(paid) > 1:
            # Nobody died, and every lease was kept: a second call pays twice for one answer.
            self._blame("paid twice", f"{event}")

    def _turn_ended(self, case: Case, event: Event) -> None:
        case.ended.append(event)
        began = max((c.began for c in case.calls.values() if c.who == event["who"]), default=0.0)
        for token, send in case.sends.items():
            meant = send.kind == "stop" and send.target == event["question"] and send.acked is not None
            if meant and event["status"] == "completed" and self._calm and send.acked is not None:
                # A worker asks for stops once a second, in a tool every five, and heeds them at a chunk.
                if began < send.acked < event["t"] - HEEDED:
                    self._blame("stop lost", f"{token}, acknowledged at {send.acked}: {event}")
        self._over(case, event["who"], event["status"])
        if event["status"] in SEALED:
            for number in event["inputs"]:
                case.done.setdefault(number, (event["turn"], event["attempt"]))

    def _left(self, case: Case, event: Event) -> None:
        if event["how"] not in POLITE and event["who"] in case.silent():
            case.text.clear()  # its claim may have arrived, and an attempt may begin its text anew
        case.present = [who for who in case.present if who != event["who"]]
        self._over(case, event["who"], event["how"])

    def _over(self, case: Case, who: str, how: str) -> None:
        for call in case.calls.values():
            if call.who == who and call.ended is None:
                call.ended = how

    def _durable(self, case: Case, event: Event) -> None:
        case.durable = max(case.durable, event["id"])
        case.words.update(event["words"])
        # Who slept since may tell late, when another attempt has begun its text anew.
        if event["words"] and case.newest_call(event) and (case.alone(event["who"]) or not self._processes):
            case.text[event["question"]] = event["t"], list(event["words"])
        for call, run in event.get("runs", {}).items():
            case.runs.setdefault(run, (event["t"], call))

    def _tool_run(self, case: Case, event: Event) -> None:
        call = event["call"]
        case.ran[call] += 1
        settled = [run for run, (_, other) in case.runs.items() if other == call]
        question, _, tool = call.partition("/")
        if case.removed(question):
            return
        if settled and case.newest_call(event):
            # Who slept since it asked for the call to be durable cannot know that another has run it.
            self._blame("ran again", f"{call} had settled as {settled}: {event}")
        elif tool.startswith("once") and case.ran[call] > 1:
            self._blame("ran again", f"{call}, whose model was told that it may have run: {event}")

    def _error(self, case: Case, event: Event) -> None:
        # Whatever goes wrong, an error of the package's own tree says what to do next.
        if not event["typed"]:
            self._blame("untyped error", f"{event}")
        elif event["type"] == "Closed" and case.may_be_closed():
            return
        elif event.get("upkeep") and event["type"] in ("Refused", "Gap") and case.wiped == math.inf:
            return  # half of it is emptied: whoever tidies up leaves it alone
        elif event.get("upkeep") and "there is no session" in event.get("detail", ""):
            return  # nobody has begun it yet
        elif event["type"] in DAMAGED and case.source and not case.forked:
            return  # a fork that was broken off is a log with a hole, until it is run again
        elif event["type"] not in self._allowed:
            self._blame("wrong error", f"{event}")

    # -- what is shown ------------------------------------------------------------------------------------

    def _booted(self, case: Case, event: Event) -> None:
        self._shown(case, event)
        case.newest = event["who"]
        case.present.append(event["who"])
        case.came[event["who"]] = event["t"]
        if self._processes:
            case.text.clear()

    def _history(self, case: Case, event: Event) -> None:
        self._shown(case, event)
        users = Counter(m["id"] for m in event["messages"] if m["role"] == "user")
        for token, send in case.sends.items():
            acked = send.kind == "message" and send.acked is not None and send.acked < event["since"]
            if acked and users[token] != 1 and not case.removed(token):
                self._blame("acknowledged and gone", f"{token} stands {users[token]} times: {_brief(event)}")
        if event.get("final"):
            case.final = event["messages"]

    def _shown(self, case: Case, event: Event) -> None:
        messages = event["messages"]
        if (
            case.source and not case.forked
        ):  # it reads the source for a while, and may not tell that it is done
            self._inherit(case, self._cases[case.source])
        self._check_users(case, messages, event)
        self._check_gone(case, messages, event)
        fins = self._check_words(case, messages, event)
        for word, times in Counter(fins).items():
            if times > 1:
                self._blame("answered twice", f"{word} stands {times} times: {_brief(event)}")
        for question, times in Counter(word.partition("~")[0] for word in fins).items():
            if times > 1:
                self._blame("answered twice", f"{question} has {times} answers: {_brief(event)}")
        for ended in case.ended:
            told = ended["status"] == "completed" and ended["t"] < event["since"] and ended["fin"]
            if told and ended["fin"] not in fins and not self._hidden(case, ended["question"], event):
                self._blame("completed and gone", f"{ended['fin']}: {_brief(event)}")
        self._check_durable(case, messages, event)

    def _hidden(self, case: Case, question: str, event: Event) -> bool:
        """Whether this message and its answer need not be shown: somebody had it removed, or it stands before
        the window that was read."""
        read = event.get("whole", True) or question in event["tail"]
        return not read or case.removed(question)

    def _check_users(self, case: Case, messages: list[Record], event: Event) -> None:
        users = [m for m in messages if m["role"] == "user"]
        for message in users:
            send = case.sends.get(message["id"])
            text = "".join(part.get("text", "") for part in message["parts"])
            if text == REDACTED and message["id"] in case.redacting:
                continue
            if send is None or send.text != text:
                # Never sent, or not so: corrupt bytes were taken for healthy ones.
                self._blame("nobody said this", f"{message['id']}: {text!r}: {_brief(event)}")
        ids = [m["id"] for m in users]
        if len(set(ids)) != len(ids):
            self._blame("twice in the history", f"{ids}")
        # One that was stopped stands where its worker got to it: behind those that were answered together.
        stopped = {send.target for send in case.sends.values() if send.kind == "stop"}
        sends = [case.sends[i] for i in ids if i in case.sends and i not in stopped]
        # What was sent again so late that its sender looked no longer so far back was there before, perhaps.
        sends = [s for s in sends if max(s.tried, s.acked or s.tried) - s.began <= LOOKS_BACK]
        order = [send.id for send in sends if send.kind == "message" and send.id is not None]
        if order != sorted(order) and not self._jumps:
            self._blame("out of order", f"{ids}, by in id {order}: {_brief(event)}")

    def _check_words(self, case: Case, messages: list[Record], event: Event) -> list[str]:
        """Every word was streamed by a model, in this order, for the user message that it stands behind."""
        fins: list[str] = []
        asked = ""
        for message in messages:
            if message["role"] == "user":
                asked = message["id"]
                continue
            for words in words_of(message):
                matches = [WORD.fullmatch(word) for word in words]
                if not all(matches):
                    self._blame("nobody said this", f"{words}: {_brief(event)}")
                    continue
                fins += [word for word in words if word.endswith(".fin")]
                answers = {(match[1], match[2]) for match in matches if match is not None}
                numbers = [int(match[3]) for match in matches if match is not None and match[3] != "fin"]
                whole = numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
                known = all(a in case.calls and case.calls[a].question == q for q, a in answers)
                if len(answers) > 1 or not whole or not known:
                    self._blame("nobody said this", f"{words}: {_brief(event)}")
                elif any(question != asked for question, _ in answers) and event.get("whole", True):
                    self._blame("behind another message", f"{words} behind {asked}: {_brief(event)}")
        return fins

    def _check_durable(self, case: Case, messages: list[Record], event: Event) -> None:
        shown = {word for m in messages if m["role"] != "user" for words in words_of(m) for word in words}
        for question, (t, words) in case.text.items():
            missing = [word for word in words if word not in shown]
            if any(case.came[who] > t for who in case.silent()):
                continue  # its claim may be there already, with a text that begins anew
            if t < event["since"] and missing and not self._hidden(case, question, event):
                self._blame("durable and gone", f"{missing} of {question}: {_brief(event)}")
        runs = Counter(o["run"] for o in outputs_of(messages) if isinstance(o, dict) and "run" in o)
        for run, (t, call) in case.runs.items():
            if (
                t < event["since"]
                and runs[run] != 1
                and not self._hidden(case, call.partition("/")[0], event)
            ):
                self._blame("result lost", f"{run} of {call} stands {runs[run]} times: {_brief(event)}")

    # -- the stored bytes ---------------------------------------------------------------------------------

    def judge(self, objects: Mapping[str, bytes]) -> None:
        """The end: everything that was acknowledged against every stored byte."""
        for session, case in sorted(self._cases.items()):
            names = [name for name in (session, case.source) if name]
            if not session or any(f"/{name}/" in key for name in names for key in self.rotten):
                continue  # what was spoilt at rest is not judged: it may only be reported, which `see` does
            try:
                story = story_of(objects, session, tidied=self.tidied)
            except Broken as broken:
                self._blame("the log is broken", str(broken))
                continue
            for problem in story.problems:
                self._blame("two writers", f"{session}: {problem}")
            self._judge_inputs(session, case, story)
            self._judge_turns(session, case, story)
            self._judge_end(session, case, story)
            self._judge_snapshot(session, objects, story)

    def _judge_inputs(self, session: str, case: Case, story: Story) -> None:
        for record in story.inputs.values():
            token = record.get("key") or record.get("message", {}).get("id")
            if token not in case.sends and record["kind"] not in ("deleted", "redaction"):
                # A sender that slept, or whose store's clock jumped, may send again what had arrived: that is
                # one message all the same, which the histories show.
                self._blame("nobody sent this", f"{session}: {record}")
        for number, token in case.ids.items():
            record = story.inputs.get(number, {})
            if number <= story.log.floor or record.get("kind") == "deleted":
                continue  # tidied away, once it was applied
            if token not in (record.get("key"), record.get("message", {}).get("id")):
                self._blame("acknowledged and gone", f"{session}: input {number}, {token}: {record}")

    def _judge_turns(self, session: str, case: Case, story: Story) -> None:
        if case.durable > story.last:
            self._blame("durable and gone", f"{session}: {case.durable} of {story.last} records")
        stored = {word for turn in story.turns for word in turn.words}
        if case.words - stored and not story.log.begins_later:
            self._blame("durable and gone", f"{session}: {sorted(case.words - stored)}")
        told = {(turn.number, turn.status) for turn in story.turns}
        for ended in case.ended:
            if ended["turn"] <= story.log.turns or ended["t"] <= case.wiped:
                continue  # what the log said of it is gone; what a trim left of it is in the checkpoint
            if ended["status"] in SEALED and (ended["turn"], ended["status"]) not in told:
                self._blame("completed and gone", f"{session}: {ended}")
        answered = Counter(n for turn in story.turns if turn.status in SEALED for n in turn.inputs)
        for number, times in answered.items():
            if times > 1:
                self._blame("answered twice", f"{session}: input {number} in {times} turns")
        for turn, after in pairwise([*story.turns, None]):
            assert turn is not None
            self._judge_interrupted(session, turn, after, story)
            early = turn.attempts + story.claims < self._interruptions
            if turn.status == "exhausted" and turn.reason == "interrupted_attempts_exceeded" and early:
                incident = [t.attempts for t in story.turns if t.status in (None, "interrupted", "exhausted")]
                if sum(incident) + story.claims < self._interruptions:
                    self._blame("given up early", f"{session}: {turn}")

    def _judge_interrupted(self, session: str, turn: Turn, after: Turn | None, story: Story) -> None:
        """Who does not go on with an interrupted turn answers what came after it: a message, an edit, a
        regenerate; or takes its inputs anew."""
        if turn.status != "interrupted" or after is None or set(turn.inputs) & set(after.inputs):
            return
        kinds = {story.inputs[number]["kind"] for number in after.inputs}
        if not kinds & {"message", "edit", "regenerate", "tool-result", "tool-approval"}:
            self._blame("stranded", f"{session}: {turn} was left for {after}")

    def _judge_end(self, session: str, case: Case, story: Story) -> None:
        """After everybody has settled: nobody is stranded, and the history is what the logs make of it."""
        if case.final is None or story.deleted:
            return
        if story.open is not None:
            self._blame("stranded", f"{session}: {story.open} is open")
        turned = {n for turn in story.turns for n in turn.inputs}
        for number, record in story.inputs.items():
            if number in story.repeats or (story.closed and number not in story.applied):
                continue
            if number not in story.applied:
                self._blame("stranded", f"{session}: {record} is owed")
            elif number not in turned | story.excused and record["kind"] == "message":
                self._judge_spent(session, story, number, record)
        if not story.log.tells_all:
            return  # a fork of a session without a turn has no checkpoint that would say what it began with
        owed = {r.get("message", {}).get("id") for n, r in story.inputs.items() if n not in story.applied}
        # What came after the end is shown, and never answered; a copy of what was answered may be there, too.
        late = owed - set(story.shelf.users) if story.closed else set()
        users = [m["id"] for m in case.final if m["role"] == "user" and m["id"] not in late]
        if users != story.shelf.users:
            self._blame("not what the log says", f"{session}: {users}, the log says {story.shelf.users}")
        fins = _fins(case.final, story)
        if fins != story.shelf.fins:
            self._blame("not what the log says", f"{session}: {fins}, the log says {story.shelf.fins}")

    def _judge_spent(self, session: str, story: Story, number: int, record: Record) -> None:
        """A message is spent without a turn only by a stop or by an edit of it, or as a repetition."""
        token = record["message"]["id"]
        stops = [r for r in story.inputs.values() if r["kind"] in ("stop", "edit")]
        meant = any(r.get("messageId") in (None, token) for r in stops)
        again = any(r.get("message", {}).get("id") == token and n < number for n, r in story.inputs.items())
        if not meant and not again:
            self._blame("stranded", f"{session}: {record} was spent, and nobody asked for that")

    def _judge_snapshot(self, session: str, objects: Mapping[str, bytes], story: Story) -> None:
        key = f"sessions/{session}/snapshot.json"
        if key not in objects:
            return
        try:
            document = document_of(key, objects[key], session)
            history = history_of(objects, session, document)
        except Broken as broken:
            self._blame("snapshot", str(broken))
            return
        cursor = int(document["lastOutEventId"])
        if document["deleted"]:
            # One that is run again writes another; killed there, it leaves the first one's tombstone.
            begins = [piece.last for piece in deletions_of(objects, session)]
            if not story.log.pieces[0].says("session-deleted") or cursor not in begins or history:
                self._blame("snapshot", f"{session}: a tombstone at {cursor}, where no deletion is")
            return
        begun = story.log.pieces[0] if story.log.pieces else None
        if begun is not None and begun.says("session-deleted") and cursor < begun.first:
            return  # the deletion was broken off
        if cursor not in story.shelves:
            self._blame("snapshot", f"{session}: stands at {cursor}, where no turn's end is")
            return
        shelf, applied = story.shelves[cursor]
        nonce, first = story.ends[cursor]
        begins = int(document["lastOutFirst"])
        if document["lastOutNonce"] != nonce or not (begins == first or (self.tidied and begins > first)):
            self._blame("snapshot", f"{session}: names another segment at {cursor}")
        highest = int(document["lastInEventId"] or 0)
        if {*range(1, highest + 1), *document["inApplied"]} - story.repeats != applied - story.repeats:
            self._blame(
                "snapshot", f"{session}: {highest} and {document['inApplied']} applied, not {applied}"
            )
        users = [m["id"] for m in history if m["role"] == "user"]
        fins = _fins(history, story)
        if (users, fins) != (shelf.users, shelf.fins) and story.log.tells_all:
            self._blame("snapshot", f"{session}: holds {users} {fins}, the log {shelf.users} {shelf.fins}")


def _fins(messages: list[Record], story: Story) -> list[str]:
    """The last words of the answers that completed turns gave, as they stand in these messages. One that was
    said whole may also stand in a turn that was stopped then, which nobody promises."""
    ended = {word for turn in story.turns if turn.status == "completed" for word in turn.fins}
    ended |= story.known
    found = [word for m in messages if m["role"] != "user" for words in words_of(m) for word in words]
    return [word for word in found if word.endswith(".fin") and word in ended]


def _brief(event: Event) -> str:
    """An event for a person, without the whole of its messages."""
    shown = [
        m["id"] if m["role"] == "user" else [w for words in words_of(m) for w in words]
        for m in event["messages"]
    ]
    return f"{event['what']} by {event['who']} at {event['t']:.3f}: {shown}"
