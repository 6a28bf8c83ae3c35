"""`policy`: what a role may ask of a bucket, to be given to the store."""

from __future__ import annotations

import click
import orjson

from snapshotter import InvalidId, policies
from streams.buckets.url import located

from .output import emit, json_option, say, url_argument


@click.command(
    short_help="Least-privilege policies for a bucket.",
    epilog="\b\nExample:\n  snapshotter policy sender s3://bucket/agents > sender.json\n"
    "  aws iam put-role-policy --role-name web --policy-name chats --policy-document file://sender.json\n"
    "  snapshotter policy reader s3://bucket/agents --tenant acme/",
)
@click.argument("role", type=click.Choice(list(policies.ROLES)))
@url_argument
@click.option("--tenant", default="", help="Only sessions whose ids begin so; ends in a separator: acme/")
@click.option("--create-only", is_flag=True, help="Writes to the logs have to create; for AWS.")
@json_option
def policy(role: str, url: str, tenant: str, create_only: bool, as_json: bool) -> None:
    """Print what ROLE may ask of the bucket at URL, as a JSON document of the IAM policy language.

    A sender sends, a worker boots and answers, a reader shows, a maintainer does everything in this root. No
    request is made. Let a maintainer run `doctor` once before senders and workers start: they need not, and
    under their policies cannot, probe the store.
    """
    try:
        place = located(url)
    except InvalidId as error:
        if url.startswith("file:"):
            error.add_note("a folder has no policies: use the system's rights")
        raise
    document = policies.policy(role, place, tenant=tenant, create_only=create_only)
    if as_json:
        emit(document)
    else:
        for line in orjson.dumps(document, option=orjson.OPT_INDENT_2).decode().split("\n"):
            say(line)
