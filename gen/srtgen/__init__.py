"""Turns a YAML recipe into a self-contained folder of shell scripts that serves and benchmarks an LLM on Slurm."""

__version__ = "0.1.0"
