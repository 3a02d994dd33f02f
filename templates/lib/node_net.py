"""Preflight of a node: addresses, ports, RDMA."""

from __future__ import annotations

import argparse
import fcntl
import glob
import ipaddress
import os
import shutil
import socket
import struct
import subprocess
from typing import Dict, List, Tuple

import node_engine

SYSFS = "/sys"
PROC = "/proc"
BRIDGES = ("lo", "docker", "virbr", "br-", "cni", "veth", "flannel", "cali", "podman", "lxc", "kube-")
PRIVATE = [ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]  # RFC 1918
SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B
Address = Tuple[str, str, str]  # interface, address, network


def addresses_by_ip() -> "List[Tuple[str, str]]":
    """(interface, address/prefix) of all that are up, by iproute2."""
    done = subprocess.run(["ip", "-o", "-4", "addr", "show", "up"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20)
    rows = [line.split() for line in done.stdout.decode("utf-8", "replace").splitlines()]
    return [(row[1], row[3]) for row in rows if len(row) > 3 and row[2] == "inet"]


def addresses_by_ioctl() -> "List[Tuple[str, str]]":
    """The same from the kernel, for nodes without iproute2: the first address of each interface."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for path in sorted(glob.glob(SYSFS + "/class/net/*")):
            name = os.path.basename(path)
            request = struct.pack("256s", name.encode()[:15])
            try:
                address = socket.inet_ntoa(fcntl.ioctl(probe, SIOCGIFADDR, request)[20:24])
                mask = socket.inet_ntoa(fcntl.ioctl(probe, SIOCGIFNETMASK, request)[20:24])
            except OSError:
                continue
            found.append((name, "{}/{}".format(address, mask)))
    return found


def default_interface() -> str:
    """The interface of the default route, '' without one."""
    try:
        with open(PROC + "/net/route", encoding="ascii") as stream:
            rows = [line.split() for line in stream.readlines()[1:]]
    except OSError:
        return ""
    return next((row[0] for row in rows if len(row) > 1 and row[1] == "00000000"), "")


def is_bridge(interface: str) -> bool:
    """True for what leads only to containers of this node."""
    return interface.startswith(BRIDGES) or os.path.isdir("{}/class/net/{}/bridge".format(SYSFS, interface))


def choose(found: "List[Tuple[str, str]]", wanted: str, default: str) -> "List[Address]":
    """The usable ones, best first: the wanted interface only; else private before public, default route first."""
    usable = []
    for interface, text in found:
        address = ipaddress.ip_interface(text)
        if address.ip.is_loopback or address.ip.is_link_local or address.ip.is_unspecified:
            continue
        if (interface != wanted) if wanted else is_bridge(interface):
            continue
        public = not any(address.ip in network for network in PRIVATE)
        usable.append((public, interface != default, interface, address))
    usable.sort(key=lambda item: item[:2])
    return [(interface, str(address.ip), str(address.network)) for _, _, interface, address in usable]


def addresses(wanted: str) -> "List[Address]":
    """This node's candidates for the one address that the job uses for it."""
    found = addresses_by_ip() if shutil.which("ip") else addresses_by_ioctl()
    return choose(found, wanted, default_interface())


def port_is_free(port: int) -> bool:
    """Binds as a server would; a connection that is being closed does not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def listener_inodes(port: int) -> "List[str]":
    """Socket inodes that listen on the port, in /proc/net's own notation."""
    found = []
    for name in ("tcp", "tcp6"):
        try:
            with open("{}/net/{}".format(PROC, name), encoding="ascii") as stream:
                rows = [line.split() for line in stream.readlines()[1:]]
        except OSError:
            continue
        found += [row[9] for row in rows if row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port]
    return found


def port_owner(port: int) -> str:
    """Who listens there: pid, command and Slurm job, as far as this user may see it."""
    wanted = {"socket:[{}]".format(inode) for inode in listener_inodes(port)}
    for link in glob.glob(PROC + "/[0-9]*/fd/*"):
        try:
            if os.readlink(link) not in wanted:
                continue
            folder = os.path.dirname(os.path.dirname(link))
            with open(folder + "/cmdline", "rb") as stream:
                command = stream.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120]
            with open(folder + "/environ", "rb") as stream:
                names: Dict[bytes, bytes] = dict(item.partition(b"=")[::2] for item in stream.read().split(b"\0"))
        except OSError:
            continue
        job = names.get(b"SLURM_JOB_ID", b"").decode()
        return "pid {}{}: {}".format(os.path.basename(folder), " of job " + job if job else "", command)
    return "a process of another user"


def check_ports(plan: argparse.Namespace) -> "Tuple[str, str]":
    """Every port that the plan puts on this node is free."""
    host = os.environ.get("SLURMD_NODENAME", "")
    taken = []
    for item in plan.listen:
        index, first, last, owner = item.split()
        if plan.host[int(index)] != host:
            continue
        for port in range(int(first), int(last) + 1):
            if not port_is_free(port):
                taken.append("port {} of {} is in use by {}".format(port, owner, port_owner(port)))
    return ("fail", "; ".join(taken[:4])) if taken else ("ok", "")


def usable_gid(port: str, index: str) -> bool:
    """True if the port of an adapter has a GID that other nodes can reach: not empty, not link-local."""
    try:
        with open(port + "/link_layer", encoding="ascii") as stream:
            if stream.read().strip() == "InfiniBand":
                return True
    except OSError:
        pass
    for path in glob.glob("{}/gids/{}".format(port, index or "[0-9]*")):
        try:
            with open(path, encoding="ascii") as stream:
                gid = stream.read().strip()
        except OSError:
            continue
        if gid.replace(":", "").strip("0") and not gid.lower().startswith("fe80"):
            return True
    return False


def check_rdma(plan: argparse.Namespace) -> "Tuple[str, str]":
    """With rdma: an adapter with an active port and a GID that is routable."""
    if plan.transport != "rdma":
        return "ok", "not used"
    devices = sorted(os.path.basename(path) for path in glob.glob(SYSFS + "/class/infiniband/*"))
    wanted = [name for name in plan.ib_device.split(",") if name] or devices
    missing = [name for name in wanted if name not in devices]
    if missing or not wanted:
        return "fail", "RDMA device {} is missing; there are: {}".format(", ".join(missing) or "of any kind", ", ".join(devices) or "none")
    bad = []
    for name in wanted:
        ports = glob.glob("{}/class/infiniband/{}/ports/*".format(SYSFS, name))
        active = [port for port in ports if port_state(port).endswith("ACTIVE")]
        if not active:
            bad.append(name + " has no active port")
        elif not any(usable_gid(port, plan.gid_index) for port in active):
            bad.append("{} has no usable GID{}".format(name, " at index " + plan.gid_index if plan.gid_index else ""))
    # Of automatic devices some may be unplugged; named ones must all work.
    if bad and (plan.ib_device or len(bad) == len(wanted)):
        return "fail", "; ".join(bad)
    closed = node_engine.closed_devices(plan, ["/dev/infiniband/uverbs*"])
    if closed:
        return "fail", closed
    return ("note" if bad else "ok"), "; ".join(bad) or ", ".join(wanted)


def port_state(port: str) -> str:
    """Such as "4: ACTIVE"; '' if unknown."""
    try:
        with open(port + "/state", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""
