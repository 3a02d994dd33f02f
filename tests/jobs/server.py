"""An HTTP server in the place of workers and routers, whose answers a test gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, Any], tuple[int, Any]]


class Server(ThreadingHTTPServer):
    """A client that hangs up before the answer is no error."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def server(answer: Answer) -> Iterator[int]:
    """An HTTP server whose answers a function gives: (status, JSON or bytes)."""
    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, body = answer(self.path, json.loads(self.rfile.read(length)) if length else None)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = reply

        def log_message(self, *args: object) -> None:
            pass

    httpd = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield httpd.server_address[1]
    finally:
        httpd.shutdown()
        httpd.server_close()
