"""Where the public files are that the checks of this directory read: `make public-data DATA=DIRECTORY` says so.

They are the public artefact's throughput files and traces with the prototype's figures, and logs that others published.
None of them is part of the project, so `make test` does without these checks.
"""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ["GAVEL_PUBLIC_DATA"]).resolve()
