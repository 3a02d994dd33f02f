"""Stand-in for a package of ROCm/ATOM (see tests/standins/README.md)."""
