"""Each role under its policy, on a server that evaluates it: what it needs works, all else is denied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import boto3
import orjson
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from click.testing import CliRunner

import snapshotter
from snapshotter import AccessDenied, Database, InvalidId, Refused, maintenance, policies
from snapshotter.catalogue import all_sessions
from snapshotter.cli.app import cli
from snapshotter.core.blocks import Sizes
from snapshotter.maintenance import Rules
from snapshotter.verify import verify
from streams import keys, probe
from streams.buckets.minio import MinioBucket
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.remote import Keys
from streams.buckets.s3 import S3Bucket
from streams.buckets.url import Location, located

BUCKET = "snapshotter"  # which the script makes
ROOT = "app/agents"
RAW = "app/tables"  # of the tests that put what they like there
TENANT = "acme/"
SIZES = Sizes(inline=1_000, tail=6_000, turns=6, value=1_000)
LARGE = "x" * 1_500
ROLES = ("sender", "worker", "reader", "maintainer")
DRIVERS: dict[str, Any] = {"s3": S3Bucket, "minio": MinioBucket, "obstore": ObstoreBucket}

# Written by hand from what the roles are for, so that a policy which grants more, or less, is found out.
SESSION = {"sessions", "in", "out", "blocks", "values", "checkpoints"}
READS = {
    "sender": {"in", "capabilities.json"},
    "worker": SESSION | {"capabilities.json"},
    "reader": SESSION | {"capabilities.json"},
    "maintainer": SESSION | {"capabilities.json", "probe"},
}
WRITES = {
    "sender": {"in", "values"},
    "worker": {"sessions", "out", "blocks", "values"},
    "reader": set(),
    "maintainer": SESSION | {"capabilities.json", "probe"},
}
BY_ROOT = {"capabilities.json", "probe"}  # what a tenant shares with the others: to be read at most


@pytest.fixture(scope="module")
def server(start_seaweed: Callable[..., Any]) -> Any:
    where = Location(BUCKET, ROOT, "")
    documents = {role: policies.policy(role, where) for role in ROLES}
    documents |= {f"{role} of acme": policies.policy(role, where, tenant=TENANT) for role in ROLES}
    raw = Location(BUCKET, RAW, "")
    documents |= {f"raw {role}": policies.policy(role, raw) for role in ROLES}
    documents |= {f"raw {role} of acme": policies.policy(role, raw, tenant=TENANT) for role in ROLES}
    documents["sender that creates"] = policies.policy("sender", where, create_only=True)
    return start_seaweed(documents)


def keys_of(server: Any, user: str | None) -> Keys:
    """Of a user who is bound to a policy; None: of the owner."""
    return Keys(*(server.users[user] if user else (server.access_key, server.secret_key)))


@pytest.fixture
def opened(server: Any) -> Iterator[Callable[..., Database]]:
    """Opens a root with the keys of a user; the store was probed."""
    found: list[Database] = []

    def open_as(user: str | None, driver: str = "s3", root: str = ROOT) -> Database:
        own = keys_of(server, user)
        bucket = DRIVERS[driver](BUCKET, root, endpoint=server.endpoint, keys=lambda: own)
        found.append(Database(bucket, sizes=SIZES))
        return found[-1]

    probe.ensure(open_as(None).store)
    yield open_as
    for db in found:
        db.close()


def chunks(number: int, *, whole: bool = True) -> list[dict[str, Any]]:
    told = [
        {"type": "start", "messageId": f"a{number}"},
        {"type": "start-step"},
        {"type": "tool-input-available", "toolCallId": f"c{number}", "toolName": "t", "input": {}},
        {"type": "tool-output-available", "toolCallId": f"c{number}", "output": LARGE},
    ]
    return [*told, {"type": "finish-step"}, {"type": "finish"}] if whole else told


def message(number: int, text: str = "hi") -> dict[str, Any]:
    return {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}


def answer(db: Database, session: str, **options: Any) -> None:
    with db.boot(session, **options) as booted:
        for turn in booted.turns():
            with turn:
                for chunk in chunks(turn.number):
                    turn.write(chunk)


# -- what a role needs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("tenant", [False, True])
def test_every_role_does_all_of_its_work(
    opened: Callable[..., Database], driver: str, tenant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rules, "is_old", lambda *_: True)
    of = " of acme" if tenant else ""
    one, other, third = (f"acme/{driver}{of}-{n}" for n in "abc")
    examined = opened("maintainer", driver)
    probe.probe(examined.store, examined.clock)

    sender, worker, reader, keeper = (opened(f"{role}{of}", driver) for role in ROLES)
    receipt = sender.send(one, message(1, LARGE))
    assert sender.send(one, message(1, LARGE)).id == receipt.id
    sender.send(one, message(2), key="k")
    sender.edit(one, "u2", message(2, LARGE + "!"))
    answer(worker, one, receipt=receipt)
    sender.stop(one)
    sender.regenerate(one)
    for number in range(3, 9):
        sender.send(one, message(number, "long " * 60))
        answer(worker, one)
    died = worker.boot(one, receipt=sender.send(one, message(9)))
    turn = next(died.turns())
    for chunk in chunks(9, whole=False):
        turn.write(chunk)
    turn.flush()
    died.close()
    answer(worker, one, takeover=True, claim=True, window=4)
    worker.create(third, messages=[message(1)], state={"a": 1})

    seen = reader.history(one)
    assert len(seen) == 18
    assert reader.history(one, limit=2) == seen[-2:]
    assert list(reader.follow(one, timeout=0))
    assert list(reader.records(one, "in"))
    assert {one, third} <= {info.id for info in reader.sessions(prefix=TENANT)}
    assert verify(reader, one).problems == []
    assert reader.peek(one).resume.kind == "none"
    if not tenant:
        assert one in set(all_sessions(reader))

    maintenance.maintain(keeper, [one], keep=maintenance.Keep(turns=1))
    maintenance.fork(keeper, one, other)
    maintenance.redact(keeper, one, "u3")
    file = BytesIO()
    maintenance.export(keeper, other, file)
    maintenance.delete(keeper, other)
    maintenance.gc(keeper, other)
    maintenance.delete(keeper, third)
    assert reader.history(other) == []
    assert verify(reader, one).problems == []
    assert len(reader.history(one)) == len(seen)


def test_an_imported_session_needs_no_more(opened: Callable[..., Database]) -> None:
    source = Database(snapshotter.open("memory://policies").store.bucket, sizes=SIZES)
    source.send("acme/imported", message(1, LARGE))
    answer(source, "acme/imported")
    file = BytesIO()
    maintenance.export(source, "acme/imported", file)
    keeper = opened("maintainer of acme")
    maintenance.import_(keeper, file)
    assert opened("reader of acme").history("acme/imported") == source.history("acme/imported")


# -- and nothing else ------------------------------------------------------------------------------------


class Asking:
    """Raw requests of one user; each answers whether it was allowed."""

    def __init__(self, server: Any, user: str | None) -> None:
        own = keys_of(server, user)
        self._bucket = BUCKET
        self._client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=own.access_key,
            aws_secret_access_key=own.secret_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def __getattr__(self, name: str) -> Callable[..., bool]:
        def ask(**given: Any) -> bool:
            try:
                getattr(self._client, name)(Bucket=self._bucket, **given)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 403:
                    raise
                return False
            return True

        return ask

    def copy(self, source: str, target: str) -> bool:
        return self.copy_object(Key=target, CopySource={"Bucket": self._bucket, "Key": source})

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def asking(server: Any) -> Iterator[Callable[[str | None], Asking]]:
    found: list[Asking] = []

    def ask_as(user: str | None) -> Asking:
        found.append(Asking(server, user))
        return found[-1]

    yield ask_as
    for each in found:
        each.close()


def places(session: str, root: str = RAW) -> dict[str, str]:
    """A key of every kind of object, by its kind."""
    sid, name = keys.encode_sid(session), f"{'0' * 64}-n"
    own = {
        "sessions": keys.snapshot(sid),
        "in": keys.segment("in", sid, 1),
        "out": keys.segment("out", sid, 1),
        "blocks": keys.block(sid, name),
        "values": keys.value(sid, name),
        "checkpoints": keys.checkpoint(sid, 1),
        "capabilities.json": probe.KEY,
        "probe": "probe/n-create-0",
    }
    return {kind: f"{root}/{key}" for kind, key in own.items()}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("tenant", [False, True])
def test_a_role_may_do_what_its_table_says_and_nothing_else(
    asking: Callable[..., Asking], role: str, tenant: bool
) -> None:
    owner, user = asking(None), asking(f"raw {role} of acme" if tenant else f"raw {role}")
    for kind, key in places("acme/table").items():
        owner.put_object(Key=key, Body=b"{}")
        reads = kind in READS[role] and not (tenant and kind == "probe")
        writes = kind in WRITES[role] and not (tenant and kind in BY_ROOT)
        assert user.get_object(Key=key) is reads, (kind, "get")
        assert user.head_object(Key=key) is reads, (kind, "head")
        assert user.list_objects_v2(Prefix=key) is reads, (kind, "list")
        assert user.put_object(Key=key, Body=b"{}") is writes, (kind, "put")
        assert user.delete_object(Key=key) is (writes and role == "maintainer"), (kind, "delete")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("tenant", [False, True])
def test_a_role_reaches_nothing_of_others(asking: Callable[..., Asking], role: str, tenant: bool) -> None:
    """Other roots, also those whose name only begins the same; for a tenant the other tenants, too."""
    owner, user = asking(None), asking(f"raw {role} of acme" if tenant else f"raw {role}")
    own = places("acme/mine")
    theirs = [places("acme/x", root) for root in ("app/tables2", "app/table", "app", "other")]
    if tenant:
        theirs += [places(session) for session in ("globex/x", "acme2/x", "acme", "acm")]
        theirs = [{k: v for k, v in found.items() if k not in BY_ROOT} for found in theirs]
    for key in own.values():
        owner.put_object(Key=key, Body=b"{}")
    for found in theirs:
        for kind, key in found.items():
            owner.put_object(Key=key, Body=b"{}")
            assert not user.get_object(Key=key)
            assert not user.list_objects_v2(Prefix=key)
            assert not user.list_objects_v2(Prefix=key.rpartition("/")[0] + "/")
            assert not user.put_object(Key=key, Body=b"{}")
            assert not user.delete_object(Key=key)
            assert not user.copy(key, own["in"]), (kind, "copied from them")
            assert not user.copy(own[kind], key), (kind, "copied to them")
    for prefix in ("", "app/", "app/tables"):
        assert not user.list_objects_v2(Prefix=prefix)
    assert not user.list_objects_v2()
    assert not user.list_object_versions(Prefix=f"{RAW}/in/")
    assert not user.get_bucket_policy()
    assert not user.put_bucket_policy(Policy="{}")
    assert not user.delete_bucket()


def test_a_refusal_is_told_as_one_and_changes_nothing(opened: Callable[..., Database]) -> None:
    owner = opened(None)
    owner.send("acme/refusals", message(1))
    answer(owner, "acme/refusals")
    seen = owner.history("acme/refusals")
    sender, worker, reader = (opened(role) for role in ROLES[:3])
    refused: list[Callable[[], Any]] = [
        lambda: sender.history("acme/refusals"),
        lambda: sender.boot("acme/refusals"),
        lambda: list(sender.sessions()),
        lambda: reader.send("acme/refusals", message(2)),
        lambda: worker.send("acme/refusals", message(2)),
        lambda: maintenance.delete(reader, "acme/refusals"),
        lambda: opened("reader of acme").history("globex/refusals"),
        lambda: list(opened("reader of acme").sessions()),
        lambda: opened("sender of acme").send("globex/refusals", message(1)),
        lambda: opened("worker of acme").boot("globex/refusals"),
    ]
    for call in refused:
        with pytest.raises(AccessDenied):
            call()
    assert owner.history("acme/refusals") == seen
    assert verify(owner, "acme/refusals").problems == []


@pytest.mark.parametrize("role", ["sender", "worker"])
def test_who_may_not_probe_says_who_has_to(opened: Callable[..., Database], role: str) -> None:
    opened(None).store.delete(probe.KEY)
    db = opened(role)
    with pytest.raises(AccessDenied, match="snapshotter doctor"):
        db.create("acme/unprobed") if role == "worker" else db.send("acme/unprobed", message(1))
    assert opened(None).store.list("probe/").entries == ()


def test_a_store_that_does_not_know_the_create_condition_refuses_every_write(
    opened: Callable[..., Database],
) -> None:
    """Said of `create_only`: the server here is such a store."""
    with pytest.raises(AccessDenied):
        opened("sender that creates").send("acme/create", message(1))


# -- the documents ---------------------------------------------------------------------------------------


def statements(*given: Any, **options: Any) -> dict[str, dict[str, Any]]:
    document = policies.policy(*given, **options)
    assert document["Version"] == "2012-10-17"
    return {each["Sid"]: each for each in document["Statement"]}


def test_create_only_asks_for_the_condition_where_nothing_is_ever_replaced() -> None:
    found = statements("worker", Location("b", "", ""), create_only=True)
    assert found["Create"]["Condition"] == {"Null": {"s3:if-none-match": "false"}}
    assert found["Create"]["Resource"] == [f"arn:aws:s3:::b/{f}/*" for f in ("out", "blocks", "values")]
    assert found["Write"]["Resource"] == ["arn:aws:s3:::b/sessions/*"]
    assert "Write" not in statements("sender", Location("b", "", ""), create_only=True)
    where = Location("b", "", "")
    assert policies.policy("maintainer", where, create_only=True) == policies.policy("maintainer", where)


@pytest.mark.parametrize(
    ("region", "partition"),
    [("", "aws"), ("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")],
)
def test_the_partition_is_the_regions(region: str, partition: str) -> None:
    found = statements("reader", Location("b", "p", region))
    assert found["List"]["Resource"] == [f"arn:{partition}:s3:::b"]


def test_a_bucket_without_a_path() -> None:
    found = statements("maintainer", Location("b", "", ""))
    assert found["All"]["Resource"] == ["arn:aws:s3:::b/*"]
    assert statements("sender", Location("b", "", ""))["Read"]["Resource"] == [
        "arn:aws:s3:::b/in/*",
        "arn:aws:s3:::b/capabilities.json",
    ]


@pytest.mark.parametrize("tenant", ["acme", "a1", "é", ".", "..", "*?${aws:username}", "a\ud800/"])
def test_a_tenant_that_names_more_than_itself_is_refused(tenant: str) -> None:
    where = Location("b", "", "")
    if tenant.startswith("*"):
        # A pattern's own characters are escaped as in every id, and mean themselves.
        found = statements("reader", where, tenant=tenant)["Read"]["Resource"]
        assert found[0] == "arn:aws:s3:::b/sessions/%2A%3F%24%7Baws%3Ausername%7D*"
        return
    with pytest.raises(Refused):
        policies.policy("reader", where, tenant=tenant)


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(Refused, match="sender, worker, reader, maintainer"):
        policies.policy("admin", Location("b", "", ""))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://b/a/c?region=eu-west-1", Location("b", "a/c", "eu-west-1")),
        ("s3+obstore://b", Location("b", "", "")),
        ("minio://127.0.0.1:9000/b/a/", Location("b", "a", "")),
    ],
)
def test_where_a_url_leads(url: str, place: Location) -> None:
    assert located(url, env={}) == place


@pytest.mark.parametrize(
    "url", ["file:///tmp/x", "memory://x", "s3://", "minio://host", "s3://b/../c", "s3://b/\n", "ftp://b"]
)
def test_what_is_no_bucket_has_no_policy(url: str) -> None:
    with pytest.raises(InvalidId):
        located(url, env={})


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_command_prints_the_document(flags: list[str]) -> None:
    ran = CliRunner().invoke(cli, ["policy", "sender", "s3://b/p", "--tenant", TENANT, *flags])
    assert ran.exit_code == 0
    assert orjson.loads(ran.stdout) == policies.policy("sender", Location("b", "p", ""), tenant=TENANT)
    assert ran.stdout.count("\n") > 1 or flags
