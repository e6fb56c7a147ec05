"""NVIDIA's service for two processes on one GPU at the same time: started when a pair comes, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_CONTROL = "nvidia-cuda-mps-control"


@dataclass
class Mps:
    """One daemon for an agent, with directories of its own so that it meets no other."""

    directory: Path
    environment: Mapping[str, str]
    running: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def start(self) -> dict[str, str]:
        """Make sure that it runs; what a job needs in its environment to use it, nothing where it is not installed."""
        with self._lock:  # both of a pair may come at the same time
            return self._told() if self.running or self._start() else {}

    def quit(self) -> None:
        """End the daemon, also one that an earlier agent left."""
        if (self.directory / "pipe").is_dir() and shutil.which(_CONTROL, path=self.environment.get("PATH")):
            self._control([], "quit\n")
            shutil.rmtree(self.directory, ignore_errors=True)
        self.running = False

    def _start(self) -> bool:
        if shutil.which(_CONTROL, path=self.environment.get("PATH")) is None:
            return False
        for directory in self._told().values():
            Path(directory).mkdir(parents=True, exist_ok=True)
        self.running = self._control(["-d"], "")
        return self.running

    def _control(self, arguments: list[str], words: str) -> bool:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                [_CONTROL, *arguments],
                input=words,
                text=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**self.environment, **self._told()},
                timeout=20,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0

    def _told(self) -> dict[str, str]:
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.directory / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.directory / "log"),
        }
