"""The identity of an agent and its cluster: kept in its state directory, and written before anything depends on it.

It decides which schedulers an agent follows; the stream only asks. An agent that loses its state directory has lost
its identity and is a new agent to the scheduler.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from gavel.errors import GavelError, InputError
from gavel.runtime.messages import AttachRefused, ToAgentFrame, Welcome

FILE = "identity.json"


class OlderSchedulerError(GavelError):
    """A scheduler that another one has replaced."""

    def __init__(self, term: int, highest: int, refusal: str = "") -> None:
        said = f"; it said: {refusal}" if refusal else ""
        super().__init__(f"an older scheduler (term {term} < {highest}) was ignored{said}")


class OtherClusterError(GavelError):
    """A scheduler of another cluster, while tasks of the current one still run."""

    def __init__(self, other: str, own: str) -> None:
        super().__init__(
            f"it belongs to cluster {other}, but this agent still runs tasks of cluster {own}; "
            "it will switch when they have ended"
        )


@dataclass
class AgentIdentity:
    """What an agent remembers across runs; the copy on disk is never behind."""

    path: Path
    agent: str
    cluster: str = ""
    """The cluster last served; empty: none yet."""
    term: int = 0
    """The highest term heard from a scheduler of that cluster."""

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Read the identity from a state directory, or create one."""
        path = directory / FILE
        try:
            document = json.loads(path.read_text())
            return cls(path, str(document["agent"]), str(document["cluster"]), int(document["term"]))
        except FileNotFoundError:
            made = cls(path, uuid4().hex)
            made._write({})
            return made
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path} does not contain an agent's identity ({error!r}); remove it to make this a new agent"
            ) from error

    def is_news(self, frame: ToAgentFrame) -> bool:
        """Whether `follow` has to decide about a frame."""
        return frame.term != self.term or isinstance(frame.message, Welcome)

    def follow(self, frame: ToAgentFrame, *, busy: bool) -> str:
        """Check that a frame may be obeyed, after saving what must survive us; returns the cluster it left, if any.

        Terms belong to a cluster, so a Welcome of another one is accepted only when no tasks of the current one run. A
        refusal changes nothing: it may come from any cluster.
        """
        message = frame.message
        if isinstance(message, Welcome) and message.cluster and message.cluster != self.cluster:
            return self._change_over(message.cluster, frame.term, busy=busy)
        if frame.term < self.term:
            raise OlderSchedulerError(
                frame.term, self.term, message.reason if isinstance(message, AttachRefused) else ""
            )
        if frame.term > self.term and not isinstance(message, AttachRefused):
            self._write({"term": frame.term})
        return ""

    def _change_over(self, cluster: str, term: int, *, busy: bool) -> str:
        left = self.cluster
        if left and busy:
            raise OtherClusterError(cluster, left)
        self._write({"cluster": cluster, "term": term})
        return left

    def _write(self, changes: dict[str, Any]) -> None:
        document = {"agent": self.agent, "cluster": self.cluster, "term": self.term, **changes}
        write_durably(self.path, json.dumps(document).encode())
        self.cluster, self.term = str(document["cluster"]), int(document["term"])


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a power cut, the old or the new one is there, complete."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
