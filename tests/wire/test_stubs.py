"""The committed stubs are those of the protocol."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_committed_stubs_match_the_protocol(tmp_path: Path) -> None:
    tool = f"from pathlib import Path; import make_stubs; make_stubs.make(make_stubs.SOURCE, Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", tool], cwd=ROOT / "tools", check=True)
    for name in ("gavel_pb2.py", "gavel_pb2.pyi", "gavel_pb2_grpc.py"):
        made = tmp_path / "gavel" / "wire" / name
        assert made.read_text() == (ROOT / "src" / "gavel" / "wire" / name).read_text(), "run tools/make_stubs.py"
