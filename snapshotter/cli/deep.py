"""`doctor --deep`: the bucket's contract, tried out by the very checks that this project's own backends pass.

The probe asks what it has to, in the seconds before a first write. This asks everything: each check of
`streams.testing.conformance`, on proving grounds in the user's own bucket. Each belongs to a guarantee, and
says what follows where it fails:

    create      If-None-Match: the fence between two workers
    replace     If-Match: without it snapshots are compared before they are written, which is no fence
    exact       objects come back as they were written, whole
    listing     listings are complete, ordered, resumable and never old
    plain       objects are named, overwritten and deleted as asked
    copy        the store copies by itself, as a create; without it the bytes take the way through here
    (none)      what the engine does without, and what that costs

What fails takes its guarantee from what the probe found, and that is stored, so the engine does what the
verdict says. A check that was not answered is tried again, elsewhere; if it stays so, nothing follows from it
but that the verdict is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from snapshotter.errors import Misconfigured, Unreachable
from streams import probe
from streams.buckets.base import Bucket
from streams.probe import Capabilities
from streams.stats import RequestStats
from streams.store import Store
from streams.testing.conformance import CHECKS, Check, Connect, Traits

from .grounds import Grounds
from .output import aside
from .problems import PROBLEM, RETRY

State = Literal["ok", "fails", "not answered", "not applicable"]
Verdict = Literal["fenced", "unfenced", "refused", "open"]

_TRIES = 3
_UNFENCED = "two workers can win one place in a log, and what one of them wrote is lost unseen"
_UNREPLACED = (
    "an older snapshot may replace a newer one: boots stay right and read a longer tail; compact and redact "
    "are refused"
)
_UNLISTED = "the newest part of a log may not be found, and sessions may be missed"
_ALTERED = "stored history cannot be read back"
_TORN = "whoever reads an object while it is replaced may get neither the old one nor the new"
_UNCOPIED = "a fork reads and writes each block and value, where the store could copy it"
_NOT_PLAIN = "what is stored is not where it should be, or not what it should be"
_UNDATED = (
    "whether another worker is alive is judged by this machine's clock or by waiting, and maintenance takes "
    "nothing for old enough to go"
)
# Of each check: its guarantee, and what follows where it fails.
BEARINGS: dict[str, tuple[str, str]] = {
    "nonces_travel_with_the_object": (
        "",
        "no metadata is kept: after a write without an answer the bytes are compared, one GET more",
    ),
    "absent_reads_as_none": ("plain", _NOT_PLAIN),
    "a_key_is_no_folder": ("", "no key of the engine is the folder of another; nobody else should make one"),
    "bytes_come_back_as_they_were": ("exact", _ALTERED),
    "large_bodies_come_back": ("exact", _ALTERED),
    "an_object_is_seen_whole_or_not_at_all": ("exact", _TORN),
    "keys_are_taken_literally": ("plain", _NOT_PLAIN),
    "long_names_are_kept": ("", "session ids have to be shorter here than elsewhere"),
    "deletes_are_final_and_repeatable": ("plain", _NOT_PLAIN),
    "an_unconditional_put_overwrites": ("plain", _NOT_PLAIN),
    "a_copy_has_the_bytes_and_the_nonce": ("plain", _NOT_PLAIN),
    "a_copy_by_the_store_is_a_create": ("copy", _UNCOPIED),
    "the_store_dates_its_answers": (
        "",
        _UNDATED,
    ),
    "a_key_is_created_once": ("create", _UNFENCED),
    "one_racer_creates": ("create", _UNFENCED),
    "one_racer_creates_what_was_deleted": ("create", _UNFENCED),
    "only_the_named_version_is_replaced": ("replace", _UNREPLACED),
    "every_etag_serves_as_a_condition": ("replace", _UNREPLACED),
    "one_racer_replaces": ("replace", _UNREPLACED),
    "a_listing_is_ordered_bounded_and_resumable": ("listing", _UNLISTED),
    "a_listing_keeps_to_its_prefix": ("listing", _UNLISTED),
    "a_catalogue_over_folders_is_complete": ("listing", _UNLISTED),
    "a_long_listing_misses_and_repeats_nothing": ("listing", _UNLISTED),
    "an_object_added_between_pages_disturbs_no_other": ("listing", _UNLISTED),
    "a_listing_shows_what_was_just_done": ("listing", _UNLISTED),
    "folders_are_listed_in_byte_order": (
        "",
        "`ls` shows sessions in the store's own order; within a log the order is kept",
    ),
}
_FENCED = "works: two workers never write over each other, and nothing acknowledged is lost"
_ONLY_UNFENCED = (
    "works only with `allow_unfenced=True` (`snapshotter --allow-unfenced …`). Then a session works, and is "
    "resumed, while one process at a time writes to it. No longer promised: that a second worker, or a "
    "second sender, is noticed; where two write at once, what one of them was told is stored is lost"
)
CHECKSUM = "a_checksum_is_taken"
_CHECKSUM_MEANS = "leave checksum= out of the URL; Content-MD5 is sent in any case"


@dataclass(frozen=True, slots=True)
class Finding:
    """How one check went. `guarantee`: what its failing takes away, "" for nothing. `means`: what follows."""

    check: str
    state: State
    guarantee: str
    detail: str = ""
    means: str = ""

    @property
    def name(self) -> str:
        return self.check.replace("_", " ")


@dataclass(slots=True)
class Contract:
    """What was found. `verdict`: what the engine does with this store. `fenced`: it works; `unfenced`: with
    `allow_unfenced` alone; `refused`: not at all; `open`: a check that counts was not answered. `why` says it
    in words. `left`: keys that could not be removed."""

    prefix: str = ""
    traits: Traits = field(default_factory=Traits)
    findings: list[Finding] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    capabilities: Capabilities | None = None
    verdict: Verdict = "open"
    why: str = ""
    requests: RequestStats = field(default_factory=RequestStats)
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return {"fenced": 0, "open": RETRY}.get(self.verdict, PROBLEM)

    @property
    def losses(self) -> list[str]:
        """What works less well here, though the engine works; in words."""
        return list(dict.fromkeys(f.means for f in self.findings if f.state == "fails" and f.means))

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "why": self.why,
            "losses": self.losses,
            "contract": [asdict(finding) for finding in self.findings],
            "capabilities": None if self.capabilities is None else asdict(self.capabilities),
            "racers": self.traits.racers,
            "rounds": self.traits.rounds,
            "prefix": self.prefix,
            "left": self.left,
            "requests": {**asdict(self.requests), "requests": self.requests.requests},
            "seconds": round(self.seconds, 3),
        }


def examine_contract(
    store: Store,
    connect: Connect,
    summed: Connect | None,
    traits: Traits,
    probed: Capabilities,
    tell: Callable[[Finding], None] = lambda _finding: None,
) -> Contract:
    """Hold the store to the contract, and store what it was found to keep.

    `connect` opens another bucket on the store's root; `summed` one that sends checksums, None where there
    are none to send. `probed`: what the probe has just found. `tell` gets each finding at once.

    Raises Misconfigured under `python -O`, which leaves out what the checks judge by, and what the store
    raises where the result cannot be stored.
    """
    if not __debug__:
        raise Misconfigured("the checks judge by assertions, which `python -O` leaves out: run it without")
    grounds = Grounds(store, connect, probed.etag)
    found = Contract(grounds.prefix, traits)
    began = store.clock.monotonic()
    try:
        with grounds.stoppable():
            _run(grounds, found, summed, probed, tell)
    finally:
        grounds.close()
        found.left = grounds.left
        for key in found.left:
            aside(f"could not be removed: {key}")
    found.capabilities = _kept(found, probed)
    probe.keep(store, found.capabilities, probed.exact)
    found.verdict, found.why = _judge(found, found.capabilities, trusted=store.bucket.trusted)
    found.requests = store.stats.snapshot()
    found.seconds = store.clock.monotonic() - began
    return found


def _run(
    grounds: Grounds,
    found: Contract,
    summed: Connect | None,
    probed: Capabilities,
    tell: Callable[[Finding], None],
) -> None:
    def add(finding: Finding) -> None:
        found.findings.append(finding)
        tell(finding)

    traits = found.traits
    for name, (guarantee, means) in BEARINGS.items():
        why = _not_asked(guarantee, probed)
        if why:
            add(Finding(name, "not applicable", guarantee, why))
            continue
        state, detail = _try(grounds, name, CHECKS[name], traits)
        add(Finding(name, state, guarantee, detail, "" if state == "ok" else means))
        if name == "nonces_travel_with_the_object":
            traits = replace(traits, nonces=state == "ok")  # other checks look at them as well
    if summed is None or probed.refuses:
        add(Finding(CHECKSUM, "not applicable", "", "this kind of URL has none, or asks for one already"))
        return
    state, detail = _try(grounds, CHECKSUM, CHECKS["bytes_come_back_as_they_were"], traits, summed)
    add(Finding(CHECKSUM, state, "", detail, "" if state == "ok" else _CHECKSUM_MEANS))


def _not_asked(guarantee: str, probed: Capabilities) -> str:
    """Why a check of this guarantee would say nothing; "" where it does."""
    if probed.refuses and guarantee != "create":
        return "the store refuses the conditional creates with which it begins"
    if probed.etag == "none" and guarantee == "replace":
        return "the store takes no If-Match at all"
    if not probed.copy and guarantee == "copy":
        return "the store does not copy as a create, so nothing is asked of it"
    return ""


def _try(
    grounds: Grounds, name: str, check: Check, traits: Traits, connect: Callable[[], Bucket] | None = None
) -> tuple[State, str]:
    """How the check goes, and why it fails. Where it is not answered, it is tried again elsewhere."""
    for attempt in range(1, _TRIES + 1):
        try:
            with grounds.place(f"{name}-{attempt}", connect) as place:
                check(place, traits)
            return "ok", ""
        except Unreachable as error:
            detail = str(error)
            grounds.store.clock.sleep(attempt * (1 + grounds.store.clock.jitter()) / 2)
        except Exception as error:  # noqa: BLE001 - whatever a check trips over, it is a finding
            return "fails", str(error) if type(
                error
            ) is AssertionError else f"{type(error).__name__}: {error}"
    return "not answered", detail


def _kept(found: Contract, probed: Capabilities) -> Capabilities:
    """What the probe found, less what failed since."""
    failed = {finding.guarantee for finding in found.findings if finding.state == "fails"}
    return replace(
        probed,
        create=probed.create and "create" not in failed,
        replace=probed.replace and "replace" not in failed,
        exact=probed.exact and "exact" not in failed,
        listing=probed.listing and "listing" not in failed,
        plain="plain" not in failed,
        copy=probed.copy and "copy" not in failed,
        deep=True,
    )


def _judge(found: Contract, kept: Capabilities, *, trusted: bool) -> tuple[Verdict, str]:
    lacking = probe.lack(kept)
    if lacking is not None and trusted:
        return (
            "refused",
            f"{lacking}. The engine trusts such a store unasked and would write to it: do not use it",
        )
    if lacking is not None and probe.lack(kept, allow_unfenced=True) is not None:
        return "refused", f"the engine does not write to this store: {lacking}"
    if lacking is not None:
        return "unfenced", _ONLY_UNFENCED
    silent = [f.name for f in found.findings if f.state == "not answered" and f.guarantee not in ("", "copy")]
    if silent:
        return "open", f"not settled, since the store did not answer: {', '.join(silent)}; run it again"
    return "fenced", _FENCED
