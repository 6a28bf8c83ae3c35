"""A claim is told from a segment by its length, and is no records to whoever reads it."""

from __future__ import annotations

import pytest

from streams import claims
from streams.codec import decode_segment, encode_segment
from streams.errors import Corrupt
from streams.keys import MAX


def test_a_claim_tells_how_far_its_file_reaches() -> None:
    assert claims.encode("0123456789abcdef", 12) == b'{"import":"0123456789abcdef","last":12}'
    assert claims.last_of(claims.encode("0123456789abcdef", 12)) == 12
    for other in (b"", b"{}", b'{"import":"0123456789abcdef","last":12}\n', b'{"import":"x","last":1}'):
        assert claims.last_of(other) is None


def test_no_segment_is_as_short_as_a_claim() -> None:
    longest = claims.encode("0123456789abcdef", MAX)
    shortest = encode_segment("in", [{"id": 1, "ts": 0}], nonce="n")
    assert len(longest) < claims.LEAST <= len(shortest)


def test_a_claim_holds_no_records_and_a_damaged_one_is_corrupt() -> None:
    claim = claims.encode("0123456789abcdef", 3)
    assert decode_segment(claim) is None
    with pytest.raises(Corrupt):
        decode_segment(claim.replace(b"import", b"imqort"))
