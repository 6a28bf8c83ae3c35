"""What a sender, a worker, a reader and a maintainer may ask of the bucket, as a policy of AWS's language.

    sender       appends to the in log               reads in/ and capabilities.json, and nothing else
    worker       boots sessions and answers          reads all of a session, writes out/, blocks/, values/
                                                     and the snapshot; deletes nothing, writes no input
    reader       shows histories, follows, verifies  reads all of a session, writes nothing
    maintainer   compacts, trims, deletes, redacts,  all of the root, and nothing beside it
                 forks, imports, runs `doctor`

A copy that the store makes by itself (a fork's) is a read of one object and a write of the other.

The table below is what the engine was seen to request, and tests run each role under its policy on a server
that evaluates it. Names are as telling as reads, so listing is bound to the same folders by a condition on
`s3:prefix`; that also lets a store say "absent" (404) where it would else say "forbidden" (403).

With a `tenant` a role sees only the sessions whose ids begin so. Encoding an id keeps its beginning
(streams/keys.py), so one pattern a folder does it: `in/acme%2F*`.

A policy is a plain document: pure functions, no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streams import keys
from streams.buckets.names import root_of
from streams.buckets.url import Location
from streams.errors import Refused

_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}  # by the beginning of the region's name


@dataclass(frozen=True, slots=True)
class Role:
    """Folders of a root that a role reads (and lists) and writes. `whole`: all of it, deletions too."""

    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    whole: bool = False


ROLES: dict[str, Role] = {
    "sender": Role(reads=("in",), writes=("in", "values")),
    "worker": Role(reads=keys.FOLDERS, writes=("sessions", "out", "blocks", "values")),
    "reader": Role(reads=keys.FOLDERS),
    "maintainer": Role(reads=keys.FOLDERS, writes=keys.FOLDERS, whole=True),
}
_ONCE = ("in", "out", "blocks", "values")
"""Where a sender and a worker create, and never replace."""


def policy(role: str, where: Location, *, tenant: str = "", create_only: bool = False) -> dict[str, Any]:
    """The policy document (IAM policy language, version 2012-10-17) of a role for one root.

    `tenant`: the text with which the ids of its sessions begin; it has to end in a separator, as in `acme/`.
    `create_only`: besides, a sender and a worker can replace nothing in the logs, nor a block or a value:
    their writes there have to say `If-None-Match`. AWS evaluates that (condition key `s3:if-none-match`); a
    store that does not know it refuses every write.

    Raises Refused for an unknown role, and for a tenant that another tenant's name could begin with.
    """
    found = ROLES.get(role)
    if found is None:
        raise Refused(f"there is no role {role!r:.80}; there are {', '.join(ROLES)}")
    if tenant and (tenant[-1].isalnum() or not tenant.strip(".")):
        raise Refused(
            f"ids of others could begin with the tenant {tenant!r:.80}, too: end it in a separator, as in "
            "'acme/'"
        )
    space = _Space(where, keys.encode_start(tenant))
    if found.whole and not tenant:
        return _document(_whole(space))
    return _document(_bounded(space, found, create_only and not found.whole))


@dataclass(frozen=True, slots=True)
class _Space:
    """The objects that a policy is about, as patterns. `start`: how their sessions' segments begin."""

    where: Location
    start: str

    @property
    def arn(self) -> str:
        """The bucket's."""
        region = self.where.region
        partition = next((name for begin, name in _PARTITIONS.items() if region.startswith(begin)), "aws")
        return f"arn:{partition}:s3:::{self.where.bucket}"

    @property
    def root(self) -> str:
        return root_of(self.where.prefix)

    def patterns(self, folders: Iterable[str]) -> list[str]:
        """Of keys in the bucket. Roots and segments hold none of a pattern's own characters."""
        return [f"{self.root}{folder}/{self.start}*" for folder in folders]

    def objects(self, patterns: Iterable[str]) -> list[str]:
        return [f"{self.arn}/{pattern}" for pattern in patterns]


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(sid: str, actions: list[str], resources: list[str], **condition: Any) -> dict[str, Any]:
    told = {"Condition": condition} if condition else {}
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources, **told}


def _listing(space: _Space, patterns: list[str]) -> dict[str, Any]:
    return _allow("List", ["s3:ListBucket"], [space.arn], StringLike={"s3:prefix": patterns})


def _whole(space: _Space) -> list[dict[str, Any]]:
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    return [
        _allow("All", actions, space.objects([f"{space.root}*"])),
        _listing(space, [f"{space.root}*"]),
    ]


def _bounded(space: _Space, role: Role, create_only: bool) -> list[dict[str, Any]]:
    capabilities = f"{space.root}{keys.CAPABILITIES}"
    reads = [*space.patterns(role.reads), capabilities]
    once = [folder for folder in role.writes if create_only and folder in _ONCE]
    freely = [folder for folder in role.writes if folder not in once]
    statements = [_allow("Read", ["s3:GetObject"], space.objects(reads)), _listing(space, reads)]
    if freely:
        actions = ["s3:PutObject", *(["s3:DeleteObject"] if role.whole else [])]
        statements.append(_allow("Write", actions, space.objects(space.patterns(freely))))
    if once:
        needs = {"s3:if-none-match": "false"}  # "Null: false" is AWS's way to say that it must be there
        resources = space.objects(space.patterns(once))
        statements.append(_allow("Create", ["s3:PutObject"], resources, Null=needs))
    return statements
