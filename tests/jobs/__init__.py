"""Real bash processes around the run-time library, with the data block of a job (plan_1p1d.sh)."""
