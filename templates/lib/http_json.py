"""One HTTP request inside the job: never through a proxy, always with an end."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any, Optional
from urllib.parse import urlsplit


class Failure(Exception):
    """A request that did not give what it should, in words for the operator."""


def connect(url: str, path: str, body: "Optional[Any]", deadline: float) -> "tuple[http.client.HTTPConnection, http.client.HTTPResponse]":
    """Sends GET, or POST with a JSON body; the answer's head must come before the deadline (time.monotonic)."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise Failure("no time left")
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=left)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            data = json.dumps(body).encode("utf-8")
            connection.request("POST", path, data, {"Content-Type": "application/json"})
        return connection, connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise Failure(explain(error)) from error


def explain(error: BaseException) -> str:
    """A network error in words."""
    if "timed out" in str(error):
        return "no answer in time"
    return str(error) or type(error).__name__


def read_json(url: str, path: str, body: "Optional[Any]", deadline: float) -> Any:
    """The JSON of a 2xx answer, whatever its content type; all else is a Failure."""
    connection, response = connect(url, path, body, deadline)
    try:
        text = response.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise Failure(explain(error)) from error
    finally:
        connection.close()
    if not 200 <= response.status < 300:
        raise Failure("HTTP {}: {}".format(response.status, " ".join(text.split())[:300]))
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failure("not JSON: {}".format(text[:100])) from error
