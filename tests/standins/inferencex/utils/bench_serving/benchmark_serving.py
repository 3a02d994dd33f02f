#!/usr/bin/env python3
"""Stand-in for the client of SemiAnalysisAI/InferenceX, at its place in that repository."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python"))

from standin.bench import main  # noqa: E402  (found only by the path above)

if __name__ == "__main__":
    main(inferencex=True)
