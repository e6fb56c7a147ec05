"""Two schedulers on one journal, real processes: only one leads, and one that lost the lead changes nothing."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sql
from live_cluster import GAVEL, LiveCluster, completed, eventually

from journal_places import Place, server_place

PATIENT: dict[str, object] = {"lease-slack-seconds": 40.0, "agent-timeout-seconds": 20.0}


END_OLD_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database() AND backend_start < now() - interval '1 second'
"""
"""A scheduler that waits for the lead makes a new session for each attempt; that of the leader is old."""


@pytest.fixture
def server(postgres: str) -> Place:
    return server_place(postgres)


def second_scheduler(live: LiveCluster, *more: str) -> subprocess.Popen[str]:
    """Another scheduler on the same journal, at another address."""
    arguments = ["serve", "--listen", "127.0.0.1:0", "--folder", str(live.folder / "second")]
    options = [part for name, value in live.options.items() for part in (f"--{name}", str(value))]
    return subprocess.Popen(
        [*GAVEL, *arguments, *options, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_second_scheduler_on_the_journal_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with LiveCluster(tmp_path) as live:
        live.options = {"journal": f"sqlite:///{tmp_path / 'state' / 'journal.sqlite'}"}
        second = second_scheduler(live)
        said, _ = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "another scheduler is using the journal" in said


def test_jobs_live_through_a_killed_scheduler_on_postgresql(tmp_path: Path, server: Place) -> None:
    with LiveCluster(tmp_path, {**PATIENT, "journal": server.url}) as live, live.client() as client:
        live.start_agent("fast", "v100=2")
        ids = client.submit([live.counting(f"trail{n}", steps=100) for n in range(2)])
        eventually(lambda: live.trail("trail0").steps() and live.trail("trail1").steps(), "both run")
        live.kill_scheduler()
        live.start_scheduler()
        views = client.wait(ids, timeout=120)
        assert completed(views), views
        assert [view.attempts for view in views] == [1, 1]
    assert live.trail("trail0").steps() == list(range(1, 101))


def test_a_leader_whose_session_ends_is_superseded_and_stops(tmp_path: Path, server: Place) -> None:
    """The database ends the first scheduler's connections; the one that waits takes over, and agents follow it."""
    with LiveCluster(tmp_path, {**PATIENT, "journal": server.url}) as live, live.client() as client:
        live.start_agent("fast", "v100=1")
        (job,) = client.submit(live.counting("trail", steps=60))
        eventually(live.trail("trail").steps, "it runs")
        waiting = second_scheduler(live, "--wait", "60")
        try:
            assert live.scheduler is not None
            engine = sql.create_engine(server.url)
            scheduler = live.scheduler

            def superseded() -> bool:
                with engine.connect() as connection:
                    connection.execute(sql.text(END_OLD_SESSIONS))
                return scheduler.poll() is not None

            eventually(superseded, "the first one ends")
            engine.dispose()
            assert scheduler.returncode == 1
            assert "another scheduler took over" in (tmp_path / "scheduler.log").read_text()
        finally:
            waiting.terminate()
            waiting.communicate(timeout=60)
        live.start_scheduler()
        (view,) = client.wait(job, timeout=120)
    assert completed([view]), view
    assert sorted(set(live.trail("trail").steps())) == list(range(1, 61))


def test_a_suspended_scheduler_is_superseded_after_the_lease_slack(tmp_path: Path, server: Place) -> None:
    """Its connection to the database stays alive; the one that waits takes over all the same, and the first ends."""
    options = {"lease-slack-seconds": 1.0, "journal": server.url}
    with LiveCluster(tmp_path, options) as live:
        first = live.scheduler
        assert first is not None
        first.send_signal(signal.SIGSTOP)
        waiting = second_scheduler(live, "--wait", "120")
        try:
            engine = sql.create_engine(server.url)

            def superseded() -> bool:
                with engine.connect() as connection:
                    return bool(connection.execute(sql.text("SELECT term FROM leader")).scalar() == 2)

            eventually(superseded, "the second one leads")
            engine.dispose()
            assert first.poll() is None
            first.send_signal(signal.SIGCONT)
            assert first.wait(60) == 1
            assert "another scheduler took over" in (tmp_path / "scheduler.log").read_text()
        finally:
            waiting.terminate()
            waiting.communicate(timeout=60)
