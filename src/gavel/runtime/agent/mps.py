"""NVIDIA's MPS, for two processes on one GPU at the same time: started for the first pair, where it is installed."""

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
    """One daemon per agent, with separate directories so that it does not clash with others."""

    directory: Path
    environment: Mapping[str, str]
    running: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def start(self) -> dict[str, str]:
        """Make sure that it runs; return the environment variables that jobs need, none if it is not installed."""
        with self._lock:  # both jobs of a pair may start at the same time
            return self._told() if self.running or self._start() else {}

    def quit(self) -> None:
        """Stop the daemon, including one that an earlier agent left."""
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
