"""Generate src/gavel/wire/gavel_pb2*.py from gavel.proto; needs grpcio-tools from the dev extra."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).parents[1] / "src"


def make(source: Path, target: Path) -> None:
    """Write the stubs of the protocol in `source` to `target`; both are package roots."""
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{source}", *outputs, "gavel/wire/gavel.proto"]):
        sys.exit("protoc failed")


if __name__ == "__main__":
    make(SOURCE, SOURCE)
