"""Shared parts of the stand-ins: separate processes that behave on the wire like ATOM, AToMesh and their clients."""
