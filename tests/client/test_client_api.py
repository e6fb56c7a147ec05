"""`gavel.Client` over a real socket, against a fake scheduler that a test controls, breaks and restarts."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fake_scheduler import START, FakeScheduler
from gavel.client.api import BATCH_JOBS, Client
from gavel.client.connection import scheduler_address
from gavel.client.errors import NoSuchJob, NotReachable, Refused, SchedulerFailed, TimedOut
from gavel.client.requests import JobRequest
from gavel.client.views import JobState, JobView
from gavel.errors import GavelError, InputError
from gavel.wire import gavel_pb2 as pb

TRAIN = JobRequest(["python", "train.py"], name="train", steps=100)


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler()
    yield scheduler
    scheduler.stop()


@pytest.fixture
def client(fake: FakeScheduler) -> Iterator[Client]:
    with Client(fake.address, patience=20) as connected:
        yield connected


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[list[JobView]]]]:
    """Run a call in another thread while the test makes things happen."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def finished(jobs: Mapping[str, JobView]) -> int:
    return sum(job.finished for job in jobs.values())


def test_a_submitted_job_arrives_as_it_was_asked_for(fake: FakeScheduler, client: Client) -> None:
    request = JobRequest(
        ["python", "train.py", "--lr", "0.1"],
        name="résumé",
        template="ResNet-18",
        steps=1e6,
        workers=2,
        weight=2.5,
        entity="research/nlp",
        deadline_hours=12,
        types=["v100", "k80"],
        environment={"A": "1", "EMPTY": ""},
        retries=0,
        working_directory="/data",
    )
    assert client.submit(request) == ["1"]
    assert fake.jobs["1"].request.deadline_seconds == 12 * 3600
    (view,) = client.jobs()
    assert view.request == request
    assert (view.state, view.reason, view.submitted) == (JobState.QUEUED, "waiting", START)


def test_ids_come_in_the_order_of_the_jobs_whatever_the_number_of_batches(fake: FakeScheduler, client: Client) -> None:
    count = 2 * BATCH_JOBS + 1
    ids = client.submit(JobRequest(["job", str(n)]) for n in range(count))
    assert fake.batches == [BATCH_JOBS, BATCH_JOBS, 1]
    assert [fake.jobs[each].request.command[1] for each in ids] == [str(n) for n in range(count)]


def test_jobs_that_wait_for_names_go_together_or_not_at_all(fake: FakeScheduler, client: Client) -> None:
    jobs = [JobRequest(["a"], name="first"), *[JobRequest(["a"], after=["first"])] * BATCH_JOBS]
    assert len(client.submit(jobs)) == BATCH_JOBS + 1
    assert fake.batches == [BATCH_JOBS + 1]
    with pytest.raises(InputError, match="are too many for one"):
        client.submit([JobRequest(["a"], name="first", array="0-9999"), JobRequest(["a"], after=["first"])])
    assert fake.batches == [BATCH_JOBS + 1]


def test_arrays_that_are_too_many_for_one_call_go_in_several(fake: FakeScheduler, client: Client) -> None:
    client.submit([JobRequest(["a"], array=f"0-{last}") for last in (0, 9999, 0, 0)])
    assert fake.batches == [1, 1, 2]


def test_large_jobs_go_in_smaller_batches(fake: FakeScheduler, client: Client) -> None:
    large = JobRequest(["sh", "-c", "x" * 1_000_000])
    assert len(client.submit([large] * 5)) == 5
    assert fake.batches == [2, 2, 1]
    with pytest.raises(InputError, match=r"3,500,0\d\d bytes is too large"):
        client.submit(JobRequest(["sh", "-c", "x" * 3_500_000]))


def test_nothing_is_submitted_when_one_job_is_wrong(fake: FakeScheduler, client: Client) -> None:
    with pytest.raises(InputError, match="workers must be at least 1, not 0"):
        client.submit([TRAIN, JobRequest(["x"], workers=0)])
    assert not fake.jobs


def test_a_refusal_of_a_later_batch_says_what_was_accepted(fake: FakeScheduler, client: Client) -> None:
    original = fake.Submit

    def refuse_second(request: pb.SubmitRequest, context: object) -> pb.SubmitReply:
        fake.refuses = "there is no room" if fake.batches else ""
        return original(request, context)  # type: ignore[arg-type]

    fake.Submit = refuse_second  # type: ignore[method-assign]
    fake.restart()
    with pytest.raises(Refused, match="there is no room") as refusal:
        client.submit([TRAIN] * (BATCH_JOBS + 1))
    assert refusal.value.submitted == tuple(str(n + 1) for n in range(BATCH_JOBS))


def test_a_submission_whose_answer_was_lost_takes_effect_once(fake: FakeScheduler, client: Client) -> None:
    fake.break_after_submitting = 3
    assert client.submit([TRAIN, TRAIN]) == ["1", "2"]
    assert fake.batches == [2]
    assert client.submit(TRAIN) == ["3"], "another submission of the same job is another job"


def test_calls_continue_after_a_restart(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    fake.stop()
    back = threading.Timer(0.3, fake.start)
    back.start()
    assert [view.id for view in client.jobs()] == ["1"]
    back.join()


def test_a_scheduler_that_was_never_there_is_not_waited_for(fake: FakeScheduler) -> None:
    fake.stop()
    with Client(fake.address, patience=10_000) as client, pytest.raises(NotReachable) as failure:
        client.jobs()
    assert fake.address in str(failure.value)
    assert "connection refused" in str(failure.value)
    assert "gavel serve" in str(failure.value)
    assert not isinstance(failure.value, InputError)


def test_a_scheduler_that_stays_away_is_given_up(fake: FakeScheduler) -> None:
    with Client(fake.address, patience=0.2) as client:
        client.submit(TRAIN)
        updates = client.watch()
        while not next(updates).caught_up:
            pass
        fake.stop()
        with pytest.raises(NotReachable, match=r"for 0.2 s"):
            list(updates)
        with pytest.raises(NotReachable):
            client.jobs()


def test_a_scheduler_that_never_answers_is_not_waited_for_longer_than_the_timeout(fake: FakeScheduler) -> None:
    silent = threading.Event()
    fake.Cluster = lambda *_: silent.wait()  # type: ignore[assignment, method-assign]
    fake.restart()
    with Client(fake.address, timeout=0.2) as client, pytest.raises(NotReachable, match=r"within 0.2 s"):
        client.cluster()
    silent.set()


def test_a_scheduler_slow_to_accept_a_connection_is_waited_for(fake: FakeScheduler) -> None:
    """A busy scheduler accepts connections late, which is not the same as no scheduler at all."""

    def relay(listener: socket.socket) -> None:
        here, _ = listener.accept()
        time.sleep(1.0)
        with here, socket.create_connection(("127.0.0.1", fake.port)) as there:
            back = threading.Thread(target=pump, args=(there, here))
            back.start()
            pump(here, there)
            back.join()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=relay, args=(listener,), daemon=True).start()
        with Client(f"127.0.0.1:{listener.getsockname()[1]}") as client:
            assert client.jobs() == []


def test_a_stream_that_is_never_accepted_is_abandoned(fake: FakeScheduler) -> None:
    fake.mute = True
    with Client(fake.address, timeout=0.3) as client, pytest.raises(NotReachable, match=r"within 0.3 s"):
        next(client.watch())


def test_a_stream_that_is_not_accepted_after_a_restart_is_opened_again(fake: FakeScheduler) -> None:
    with Client(fake.address, timeout=0.5, patience=20) as client:
        updates = client.watch()
        assert next(updates).caught_up
        fake.mute = True
        fake.restart()
        assert "it does not respond" in (update.away for update in updates)
        fake.mute = False
        assert any(update.caught_up for update in updates)


def test_unknown_jobs_are_named(client: Client) -> None:
    for call in (client.job, client.cancel, client.wait, lambda job: list(client.logs(job))):
        with pytest.raises(NoSuchJob, match="there is no job '77'"):
            call("77")


def test_a_job_that_a_scheduler_says_nothing_of_is_not_waited_for(fake: FakeScheduler, client: Client) -> None:
    fake._check = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(NoSuchJob, match="there is no job 77"):
        client.wait(["77"])


def test_a_failure_of_the_scheduler_is_an_error_of_ours(fake: FakeScheduler, client: Client) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    fake.Cluster = broken  # type: ignore[assignment, method-assign]
    fake.restart()
    with pytest.raises(SchedulerFailed, match="failed"):
        client.cluster()


def test_jobs_are_chosen_by_state_id_age_and_number(fake: FakeScheduler, client: Client) -> None:
    client.submit([TRAIN] * 4)
    fake.move("1", pb.COMPLETED)
    fake.move("2", pb.RUNNING)

    def ids(jobs: list[JobView]) -> list[str]:
        return [job.id for job in jobs]

    assert ids(client.jobs()) == ["1", "2", "3", "4"]
    assert ids(client.jobs(states=["queued", JobState.RUNNING])) == ["2", "3", "4"]
    assert ids(client.jobs(ids=["1", "3"])) == ["1", "3"]
    assert ids(client.jobs(limit=2)) == ["3", "4"]
    assert ids(client.jobs(ended_after=START + 200)) == ["2", "3", "4"]
    with pytest.raises(InputError, match="there is no state 'slow'"):
        client.jobs(states=["slow"])


def test_cancel_leaves_finished_jobs_as_they_are(fake: FakeScheduler, client: Client) -> None:
    client.submit([TRAIN] * 2)
    fake.move("1", pb.FAILED, "exit code 3")
    assert [(job.id, job.state) for job in client.cancel(["1", "2"])] == [
        ("1", JobState.FAILED),
        ("2", JobState.CANCELLED),
    ]


def test_everything_about_a_job(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    fake.move("1", pb.RUNNING, type="v100", steps_done=25.0, attempts=2)
    fake.detail = pb.JobDetail(
        history=[pb.Transition(time=START, state=pb.QUEUED, reason="submitted")],
        shares={"v100": 0.5},
        limit="limited by v100",
        rates={"v100": 4.0, "k80": 1.0},
    )
    detail = client.job("1")
    assert (detail.job.type, detail.job.steps_done, detail.job.attempts) == ("v100", 25.0, 2)
    assert detail.limit == "limited by v100"
    document = detail.document()
    assert document["job"]["request"]["command"] == ["python", "train.py"]
    assert document["history"] == [{"time": START, "state": "queued", "reason": "submitted", "code": ""}]
    assert document["rates"] == {"v100": 4.0, "k80": 1.0}


def test_a_state_of_a_newer_scheduler_is_shown_as_unknown(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    fake.move("1", 42)  # type: ignore[arg-type]
    assert client.jobs()[0].state is JobState.UNKNOWN
    assert not client.jobs()[0].finished


def test_watch_yields_existing_jobs_and_then_changes(fake: FakeScheduler, client: Client) -> None:
    client.submit([TRAIN] * 2)
    updates = client.watch()
    assert [(u.job.id, u.caught_up) for u in (next(updates), next(updates)) if u.job] == [("1", False), ("2", False)]
    assert next(updates).caught_up
    fake.move("2", pb.RUNNING)
    change = next(updates).job
    assert change is not None
    assert (change.id, change.state) == ("2", JobState.RUNNING)


def test_watch_survives_a_restart_and_sends_everything_again(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    updates = client.watch()
    while not next(updates).caught_up:
        pass
    fake.stop()
    assert next(updates).away
    fake.move("1", pb.RUNNING)
    fake.start()
    told = next(update for update in updates if not update.away)
    assert told.job is not None
    assert told.job.state is JobState.RUNNING
    assert next(updates).caught_up


def test_wait_returns_when_the_last_job_finishes(
    fake: FakeScheduler, client: Client, aside: Callable[..., Future[list[JobView]]]
) -> None:
    client.submit([TRAIN] * 3)
    seen: list[int] = []
    waiting = aside(client.wait, ["3", "1"], on_change=lambda jobs: seen.append(finished(jobs)))
    fake.await_streams(1)
    fake.move("1", pb.FAILED, "exit code 1")
    fake.restart()
    fake.move("3", pb.COMPLETED)
    over = waiting.result(timeout=20)
    assert [(job.id, job.state) for job in over] == [("3", JobState.COMPLETED), ("1", JobState.FAILED)]
    assert seen[-1] == 2


def test_waiting_for_finished_jobs_or_for_none_returns_at_once(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    fake.move("1", pb.COMPLETED)
    assert [job.id for job in client.wait("1")] == ["1"]
    assert client.wait([]) == []


def test_wait_raises_after_its_time_limit(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    with pytest.raises(TimedOut):
        client.wait("1", timeout=0.2)
    fake.stop()
    with pytest.raises(TimedOut):
        client.wait("1", timeout=0.2)


def test_logs_are_whole_whatever_is_in_them(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    assert b"".join(client.logs("1")) == b""
    fake.prints("1", b"epoch 1\n\xff\x00epoch 2")
    fake.prints("1", b"second rank", rank=1)
    assert b"".join(client.logs("1")) == b"epoch 1\n\xff\x00epoch 2"
    assert b"".join(client.logs("1", rank=1)) == b"second rank"
    with pytest.raises(InputError):
        list(client.logs("1", rank=-1))


@pytest.mark.parametrize("lines", [0, 1, 3, 1000])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_tail_of_a_log_is_its_last_lines(fake: FakeScheduler, client: Client, lines: int, end: bytes) -> None:
    client.submit(TRAIN)
    text = [b"%d " % n + b"x" * (n * 11) for n in range(50)]
    fake.prints("1", b"\n".join(text) + end)
    kept = b"\n".join(text[max(0, 50 - lines) :]) + end if lines else b""
    assert b"".join(client.logs("1", tail=lines)) == kept


def test_a_followed_log_resumes_where_the_connection_broke(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    fake.prints("1", b"one\ntwo\n")
    pieces = client.logs("1", follow=True, tail=1)
    got = next(pieces)
    assert got == b"two\n"
    fake.prints("1", b"three\n")
    got += next(pieces)
    fake.stop()
    fake.prints("1", b"four\n")
    fake.start()
    got += next(pieces)
    fake.prints("1", b"five\n")
    fake.move("1", pb.COMPLETED)
    assert got + b"".join(pieces) == b"two\nthree\nfour\nfive\n"


def test_a_log_whose_beginning_is_gone_is_followed_from_what_is_kept(fake: FakeScheduler, client: Client) -> None:
    client.submit(TRAIN)
    fake.prints("1", b"lost kept")
    fake.dropped = 5
    fake.move("1", pb.COMPLETED)
    assert b"".join(client.logs("1", follow=True)) == b"kept"


def test_the_cluster_as_a_record(fake: FakeScheduler, client: Client) -> None:
    fake.view.servers.add(name="gpu1", agent="gpu1", type="v100", accelerators=4, free=1, state="connected", jobs=["1"])
    fake.view.types.add(name="v100", accelerators=4, busy=3, price=float("inf"))
    view = client.cluster()
    assert (view.policy, view.servers[0].jobs, view.types[0].busy) == ("max_min_fairness", ("1",), 3)
    assert view.document()["types"][0]["price"] is None, "JSON has no infinity"
    assert client.drain("gpu1").jobs == ("1",)
    with pytest.raises(Refused, match="no agent 'gpu2'") as refusal:
        client.drain("gpu2")
    assert not isinstance(refusal.value, NoSuchJob)


def test_an_agent_is_drained_undrained_and_removed(fake: FakeScheduler, client: Client) -> None:
    fake.view.servers.add(name="gpu1", agent="gpu1", type="v100", accelerators=4, state="connected")
    assert client.drain("gpu1", now=True).state == "drained"
    assert client.undrain("gpu1").state == "connected"
    with pytest.raises(Refused, match="neither lost nor drained"):
        client.remove_server("gpu1")
    client.drain("gpu1")
    assert client.remove_server("gpu1").document() == {"agent": "gpu1", "state": "removed", "jobs": []}
    for ask in (client.drain, client.undrain, client.remove_server):
        with pytest.raises(Refused, match="no agent 'gpu1'"):
            ask("gpu1")


def test_finished_jobs_come_in_pages_and_all_of_them_come(fake: FakeScheduler, client: Client) -> None:
    ids = client.submit([TRAIN] * 2300)
    for job in ids[:-2]:
        fake.move(job, pb.COMPLETED)
    assert [job.id for job in client.jobs()] == ids
    assert fake.lists == [2, 1000, 1000, 298]
    assert [job.id for job in client.jobs(finished=True, limit=1500)] == ids[798:-2]
    assert fake.lists[4:] == [1000, 500]
    assert [job.id for job in client.jobs(finished=False)] == ids[-2:]


def test_a_watcher_takes_jobs_one_by_one_and_many_at_a_time_alike(fake: FakeScheduler, client: Client) -> None:
    ids = client.submit([TRAIN] * 3)
    fake.move("2", pb.COMPLETED)
    seen = []
    for fake.at_once in (False, True):
        updates = client.watch(ended_after=START + 1000)
        seen.append([next(updates) for _ in range(3)])
        updates.close()  # type: ignore[attr-defined] # a generator
    assert seen[0] == seen[1]
    assert [update.job.id if update.job else "" for update in seen[0]] == [ids[0], ids[2], ""]
    assert seen[0][-1].caught_up
    fake.move("1", pb.COMPLETED)
    fake.move("3", pb.FAILED)
    assert [job.state for job in client.wait(ids)] == [JobState.COMPLETED, JobState.COMPLETED, JobState.FAILED]


def test_events_continue_after_a_restart_where_they_were(fake: FakeScheduler, client: Client) -> None:
    for number in range(5):
        fake.happens(f"event {number}", document='{"jobs": ["7"], "fact": {"x": 1}}')
    followed = client.events(follow=True, limit=3)
    assert [next(followed).number for _ in range(2)] == [3, 4]
    fake.restart()
    fake.happens("event 5")
    assert [next(followed).text for _ in range(2)] == ["event 4", "event 5"]
    newest = list(client.events(limit=2))
    assert (newest[0].jobs, newest[0].fact) == (("7",), {"x": 1})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, "127.0.0.1:7077"),
        ("", "127.0.0.1:7077"),
        ("head", "head:7077"),
        ("head.lab.org:80", "head.lab.org:80"),
        ("[::1]", "[::1]:7077"),
        ("[fe80::1%eth0]:9", "[fe80::1%eth0]:9"),
        ("unix:/run/gavel.sock", "unix:/run/gavel.sock"),
    ],
)
def test_an_address_may_leave_out_what_is_usual(given: str | None, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAVEL_SCHEDULER", raising=False)
    assert scheduler_address(given) == meant


@pytest.mark.parametrize("given", ["http://head:7077", "head:port", "head:70777", "head:0", "a b", "::1", "[::1"])
def test_an_invalid_address_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        scheduler_address(given)


def test_the_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAVEL_SCHEDULER", "head")
    monkeypatch.setenv("GAVEL_INSECURE", "1")
    with Client() as client:
        assert client.address == "head:7077"
    with Client("tail") as client:
        assert client.address == "tail:7077"


def test_errors_of_the_client_are_ours() -> None:
    assert all(issubclass(kind, GavelError) for kind in (NotReachable, Refused, NoSuchJob, TimedOut, SchedulerFailed))
    assert issubclass(NotReachable, ConnectionError)
    assert issubclass(TimedOut, TimeoutError)


def test_job_files_and_requests_need_no_network_library() -> None:
    source = Path(__file__).parents[2] / "src"
    code = "import sys; import gavel.client.job_file; sys.exit('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, check=False)
    assert done.returncode == 0
