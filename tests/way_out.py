"""The one way out of a cluster without a route: a proxy of this process, listening in the cluster's network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from slurm_cluster import NET, SlurmCluster


@contextmanager
def way_out(cluster: SlurmCluster) -> Iterator[dict[str, str]]:
    """Serves HTTP's CONNECT until left; gives the environment by which programs find it."""
    with cluster.listener("hub") as door:
        threading.Thread(target=_serve, args=(door,), daemon=True).start()
        try:
            yield {"https_proxy": f"http://{NET}.1:{door.getsockname()[1]}"}
        finally:
            door.shutdown(socket.SHUT_RDWR)


def _serve(door: socket.socket) -> None:
    with suppress(OSError):  # closed: that is the end
        while True:
            threading.Thread(target=_connect, args=(door.accept()[0],), daemon=True).start()


def _connect(inside: socket.socket) -> None:
    with suppress(OSError), inside, inside.makefile("rb") as head:
        method, target, _ = head.readline().decode().split()
        while head.readline() not in (b"\r\n", b""):
            pass
        host, _, port = target.rpartition(":")
        if method != "CONNECT":
            inside.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
            return
        with socket.create_connection((host, int(port)), 60) as outside:
            inside.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_copy, args=(outside, inside), daemon=True)
            back.start()
            _copy(inside, outside)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
