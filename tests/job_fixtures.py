"""A fake agent, an environment in which a test itself is the job, and iterators that are closed after the test."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import fake_agent
from gavel.client import own_loop
from gavel.client.iterator import GavelIterator
from gavel.client.link import AgentLink


@pytest.fixture
def no_gavel_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith("GAVEL_") or name in {"RANK", "WORLD_SIZE"}:
            monkeypatch.delenv(name)
    monkeypatch.setattr(AgentLink, "counting", None)
    monkeypatch.setattr(own_loop, "_LOOP", None)


@pytest.fixture
def agent(no_gavel_around: None) -> Iterator[fake_agent.FakeAgent]:
    del no_gavel_around
    with fake_agent.agent() as server:
        yield server


@pytest.fixture
def job(agent: fake_agent.FakeAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> fake_agent.FakeAgent:
    """Make this process a job of the agent, with a checkpoint directory."""
    monkeypatch.setenv("GAVEL_SOCKET", agent.path)
    monkeypatch.setenv("GAVEL_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    return agent


class Training(Protocol):
    def __call__(self, data: Iterable[Any], **options: Any) -> GavelIterator[Any]: ...


@pytest.fixture
def training(no_gavel_around: None) -> Iterator[Training]:
    del no_gavel_around
    opened: list[GavelIterator[Any]] = []

    def begin(data: Iterable[Any], **options: Any) -> GavelIterator[Any]:
        opened.append(GavelIterator(data, **options))
        return opened[-1]

    yield begin
    for steps in opened:
        steps.close()
