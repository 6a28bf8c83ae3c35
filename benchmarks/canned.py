"""A stand-in for an S3 store that answers at once, always alike: `python -m benchmarks.canned BYTES LISTED`.

Prints its port on 127.0.0.1, and serves until it is stopped. Objects have BYTES bytes, listings LISTED names.
"""

from __future__ import annotations

import socket
import sys
import threading

_HEAD = (
    b'HTTP/1.1 200 OK\r\nETag: "e"\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nx-amz-meta-nonce: n\r\n'
    b"Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
)
_NAME = (
    "<Contents><Key>bench/out/s/{}-{}.jsonl</Key><Size>1000</Size><ETag>&quot;e&quot;</ETag>"
    "<LastModified>2024-01-01T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
)
_LISTING = "<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>"


def answers(size: int, listed: int) -> dict[str, bytes]:
    """The whole answer, by GET, PUT and LIST."""
    octets = b"application/octet-stream"
    names = "".join(_NAME.format(9_999_999_999_999_999 - n, n) for n in range(listed, 0, -1))
    listing = _LISTING.format(names).encode()
    return {
        "GET": _HEAD % (octets, size) + b"x" * size,
        "PUT": _HEAD % (octets, 0),
        "LIST": _HEAD % (b"application/xml", len(listing)) + listing,
    }


def serve(call: socket.socket, canned: dict[str, bytes]) -> None:
    call.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with call, call.makefile("rb") as lines:
        while line := lines.readline():
            length = 0
            while (header := lines.readline()) != b"\r\n":
                if header.lower().startswith(b"content-length:"):
                    length = int(header.partition(b":")[2])
            lines.read(length)
            verb = "PUT" if line.startswith(b"PUT") else "LIST" if b"list-type=2" in line else "GET"
            call.sendall(canned[verb])


def main() -> None:
    canned = answers(int(sys.argv[1]), int(sys.argv[2]))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0], canned), daemon=True).start()


if __name__ == "__main__":
    main()
