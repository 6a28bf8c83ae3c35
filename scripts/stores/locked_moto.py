"""moto as a store: `locked_moto.py PORT` serves it on 127.0.0.1, one request at a time.

By itself moto looks at a condition and then writes, with nothing between that keeps others out: of racing
creates, several may win. One lock around it makes it keep its word.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server


def locked_server(port: int = 0, wrap: Callable[[Any], Any] = lambda app: app) -> BaseWSGIServer:
    """A server that does not serve yet; port 0 takes a free one. `wrap`: puts something before its app."""
    app = wrap(DomainDispatcherApplication(create_backend_app))
    lock = threading.Lock()

    def locked(environ: Any, start_response: Any) -> list[bytes]:
        with lock:
            return list(app(environ, start_response))

    return make_server("127.0.0.1", port, locked, threaded=True)


if __name__ == "__main__":
    locked_server(int(sys.argv[1])).serve_forever()
