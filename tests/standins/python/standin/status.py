"""The router's status endpoints: everything on the main port but inference."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from standin.clap import Options
from standin.http import Reply, Request, json_reply, text_reply
from standin.registry import Registry


class Status:
    """Answers about the registry; a worker may be added and removed."""

    def __init__(self, options: Options, registry: Registry) -> None:
        self.options = options
        self.registry = registry
        self.jobs: list[asyncio.Future[Any]] = []

    def route(self, request: Request) -> Reply:
        path, post = request.path, request.method == "POST"
        if path == "/workers":
            return self.accept(request) if post else self.workers()
        if path.startswith("/workers/"):
            return self.one_worker(path.split("/")[2], request.method)
        if path == "/flush_cache" and post:
            return self.flushed()
        gets = {"/health": self.alive, "/liveness": self.alive, "/readiness": self.readiness,
                "/v1/models": self.models, "/get_server_info": self.server_info, "/get_loads": self.loads,
                "/health_generate": self.health_generate}
        if path in gets and request.method == "GET":
            return gets[path]()
        return Reply(404, b"", "text/plain")

    def alive(self) -> Reply:
        return text_reply("OK")

    def readiness(self) -> Reply:
        roles = ("prefill", "decode") if self.options["pd-disaggregation"] else ("regular",)
        healthy = [entry for entry in self.registry.entries if entry.healthy]
        if all(any(entry.role == role for entry in healthy) for role in roles):
            return json_reply({"status": "ready", "healthy_workers": len(healthy),
                               "total_workers": len(self.registry.entries)})
        return json_reply({"status": "not ready", "reason": "insufficient healthy workers"}, 503)

    def workers(self) -> Reply:
        entries = self.registry.entries
        stats = {f"{role}_count": len(self.registry.of(role)) for role in ("prefill", "decode", "regular")}
        return json_reply({"workers": [entry.shown() for entry in entries], "total": len(entries), "stats": stats})

    def one_worker(self, name: str, method: str) -> Reply:
        if len(name) != 36:
            return json_reply({"error": f"Invalid worker id {name}", "code": "BAD_REQUEST"}, 400)
        found = [entry for entry in self.registry.entries if entry.id == name]
        if not found:
            return json_reply({"error": f"Worker {name} not found", "code": "WORKER_NOT_FOUND"}, 404)
        if method == "DELETE":
            self.registry.entries.remove(found[0])
            return json_reply({"status": "accepted", "worker_id": name, "message": "Worker removal queued"}, 202)
        return json_reply(found[0].shown())

    def accept(self, request: Request) -> Reply:
        body = json.loads(request.body)
        self.jobs.append(asyncio.ensure_future(self.registry.add(body["url"], body.get("worker_type", "regular"))))
        return json_reply({"status": "accepted", "url": body["url"], "message": "Worker addition queued"}, 202)

    def models(self) -> Reply:
        names = list(dict.fromkeys(entry.model for entry in self.registry.entries))
        if not names:
            return text_reply("No models available", 503)
        cards = [{"id": name, "object": "model", "owned_by": "local"} for name in names]
        return text_reply(json.dumps({"object": "list", "data": cards}, separators=(",", ":")))

    def server_info(self) -> Reply:
        count = len(self.registry.entries)
        return text_reply(json.dumps({"router_manager": True, "routers_count": 1, "workers_count": count}))

    def loads(self) -> Reply:
        return json_reply({"workers": [{"worker": entry.url, "load": -1} for entry in self.registry.entries]})

    def health_generate(self) -> Reply:
        good = any(entry.healthy for entry in self.registry.entries)
        return text_reply("OK" if good else "no healthy workers", 200 if good else 503)

    def flushed(self) -> Reply:
        failed = [{"worker": entry.url, "error": "404"} for entry in self.registry.entries]
        return json_reply({"status": "partial_success", "message": "Cache flush completed", "workers_flushed": 0,
                           "total_http_workers": len(failed), "total_workers": len(failed), "successful": [],
                           "failed": failed}, 206)
