"""`python -m srtgen`."""

from srtgen.cli import main

main()
