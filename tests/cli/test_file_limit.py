"""A scheduler may open as many files as the machine lets it, whatever the shell's usual limit is."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
allowed = min(hard, 300) if hard != resource.RLIM_INFINITY else 300
resource.setrlimit(resource.RLIMIT_NOFILE, (64, allowed))
from gavel.cli.serve import raise_file_limit
assert raise_file_limit() == allowed
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, allowed)
"""


def test_the_limit_of_open_files_is_raised_to_what_is_allowed() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=60)
