"""Every test that asks for a `place` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from places import Place, file_place, postgres_server, server_place


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # A socket's path must be short.
    with postgres_server(tmp_path_factory.mktemp("pg")) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return file_place(tmp_path)
    return server_place(request.getfixturevalue("server"))
