"""Stand-in for a package of ROCm/ATOM (see tests/standins/README.md)."""

import os

# Before anything that costs: an engine that shares the test machine must not slow down what starts it.
os.nice(int(os.environ.get("STANDIN_NICE") or 0))
