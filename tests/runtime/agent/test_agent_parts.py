"""Parts of the agent by themselves: accelerators, devices, emulation, logs, endings, settings."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.locality import Locality
from gavel.core.throughputs import builtin_table
from gavel.errors import InputError
from gavel.runtime.agent import AgentSettings, emulated
from gavel.runtime.agent.accelerators import by_type, parse_accelerators, short_type
from gavel.runtime.agent.devices import Devices
from gavel.runtime.agent.emulation import SHARED, Emulation
from gavel.runtime.agent.exit_verdict import LastWords, judge
from gavel.runtime.agent.logs import HEAD_BYTES, LogFile
from gavel.runtime.agent.rendezvous import free_port, own_address
from gavel.runtime.messages import Ending

# ---- accelerators ----


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla K80", "k80"),
        ("Tesla T4", "t4"),
        ("A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX A6000", "a6000"),
        ("Quadro RTX 6000", "rtx6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA TITAN RTX", "titanrtx"),
        ("TITAN X (Pascal)", "titanx"),
    ],
)
def test_drivers_names_become_the_short_ones_of_tables(name: str, short: str) -> None:
    assert short_type(name) == short


def test_an_agent_cannot_have_more_accelerators_than_it_was_given(tmp_path: Path) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "1"}
    settings = AgentSettings({"v100": (0, 1)}, tmp_path / "state", tmp_path / "checkpoints", environment=environment)
    with pytest.raises(
        InputError, match=r"given only the devices CUDA_VISIBLE_DEVICES=1, 1 in all, .*accelerators are 2"
    ):
        settings.check()


@pytest.mark.parametrize(
    "text", ["", "v100", "v100=", "v100=0", "v100=-1", "=3", "v100=1,v100=2", "v100=99999999", "v100=²"]
)
def test_invalid_accelerators_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="accelerators"):
        parse_accelerators(text)


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(1, 9), min_size=1))
def test_devices_are_numbered_without_gap_in_the_order_given(counts: dict[str, int]) -> None:
    found = parse_accelerators(",".join(f"{name}={count}" for name, count in counts.items()))
    assert {name: len(indices) for name, indices in found.items()} == counts
    assert [index for indices in found.values() for index in indices] == list(range(sum(counts.values())))
    names = [name for name, indices in found.items() for _ in indices]
    assert by_type(names) == found


# ---- devices ----

ORDERS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.sampled_from(["", *"abcdef"]), st.booleans()),
    max_size=40,
)


@given(ORDERS)
def test_a_device_has_one_holder_or_two_of_which_the_second_named_the_first(
    orders: list[tuple[str, int, str, bool]],
) -> None:
    devices = Devices({"v100": (0, 1, 2, 3)})
    held: dict[str, tuple[tuple[int, ...], str]] = {}
    for job, count, beside, leaves in orders:
        if job in held:
            if leaves:
                devices.leaving.add((job, 1))
            else:
                for device in held.pop(job)[0]:
                    devices.give_back((job, 1), device)
        else:
            before = {device: list(holders) for device, holders in devices.holders.items()}
            taken = devices.take((job, 1), "v100", count, beside)
            if taken is None:
                assert devices.holders == before
                continue
            assert len(set(taken)) == count
            for device in taken:
                assert before.get(device, []) in ([], [(beside, 1)])
                assert not set(before.get(device, [])) & devices.leaving
            held[job] = (taken, beside)
    everyone = [holder for holders in devices.holders.values() for holder in holders]
    assert sorted(everyone) == sorted((job, 1) for job, (taken, _) in held.items() for _ in taken)


def test_a_neighbour_with_room_is_preferred_to_a_free_device() -> None:
    devices = Devices({"v100": (0, 1, 2)})
    assert devices.take(("a", 1), "v100", 1) == (0,)
    assert devices.take(("b", 1), "v100", 1, "a") == (0,)
    assert devices.neighbour(("a", 1), 0) == ("b", 1)
    assert devices.take(("c", 1), "v100", 1, "a") is None
    devices.give_back(("b", 1), 0)
    assert devices.take(("c", 1), "v100", 1, "a") == (0,)
    assert devices.take(("d", 1), "v100", 1, "missing") == (1,)
    assert devices.neighbour(("d", 1), 1) is None


# ---- emulation ----


def test_what_no_table_knows_runs_at_the_usual_rate_of_its_type() -> None:
    emulation = Emulation(builtin_table(), time_scale=2.0)
    fast, slow = (emulation.pace(("mystery", 1), kind, locality=Locality.SERVER) for kind in ("v100", "k80"))
    assert fast > slow > 0
    assert fast == 2 * emulation.usual("v100")
    beside = emulation.pace(("mystery", 1), "v100", locality=Locality.SERVER, beside=("A3C", 1))
    assert beside == fast * SHARED


def test_a_gang_is_paced_by_where_its_workers_sit() -> None:
    table = builtin_table()
    profile = next(p for p in table.profiles if p[1] == 4 and table.rates([p], ["v100"])[0, 0, 1] > 0)
    both = table.rates([profile], ["v100"])[0, 0].tolist()
    emulation = Emulation(table)
    assert [emulation.pace(profile, "v100", locality=where) for where in Locality] == both
    assert both[0] != both[1]


@given(st.sampled_from(builtin_table().profiles), st.sampled_from(builtin_table().profiles))
def test_an_emulated_job_always_moves(profile: tuple[str, int], beside: tuple[str, int]) -> None:
    emulation = Emulation(builtin_table())
    for kind in builtin_table().types:
        for locality in Locality:
            assert emulation.pace(profile, kind, locality=locality, beside=beside) > 0


# ---- logs ----


def everything(log: LogFile) -> bytes:
    """Take all news."""
    data = b""
    while (news := log.news())[1]:
        data += news[1]
    return data


def append(log: LogFile, data: bytes) -> None:
    with log.path.open("ab") as file:
        file.write(data)


def test_a_long_log_keeps_its_beginning_and_its_newest_part(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "x.log", 4 * HEAD_BYTES)
    os.close(log.open())
    lines = [f"line {number}\n".encode() for number in range(200_000)]
    for first in range(0, len(lines), 5000):
        append(log, b"".join(lines[first : first + 5000]))
        log.trim()
        assert log.path.stat().st_blocks * 512 <= 4 * HEAD_BYTES + 100_000
    assert log.tail().endswith(b"line 199998\nline 199999\n")
    assert len(log.tail()) == 4096
    log.tidy()
    kept = log.path.read_bytes()
    head, gap, rest = kept.partition(b"\n[... ")
    assert gap
    whole = b"".join(lines)
    note, _, newest = rest.partition(b" bytes left out ...]\n")
    assert whole.startswith(head)
    assert len(head) == HEAD_BYTES
    assert whole.endswith(newest)
    assert len(newest) >= HEAD_BYTES
    assert int(note.replace(b",", b"")) == len(whole) - len(head) - len(newest)
    assert len(kept) <= 4 * HEAD_BYTES + 100


def test_a_short_log_stays_as_it_is(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "x.log", 4 * HEAD_BYTES)
    os.close(log.open())
    append(log, b"all of it")
    log.tidy()
    assert log.path.read_bytes() == everything(log) == log.tail() == b"all of it"


@given(st.lists(st.tuples(st.integers(0, 300_000), st.booleans(), st.booleans()), max_size=12), st.booleans())
def test_the_scheduler_gets_every_byte_in_order_or_learns_that_some_are_left_out(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool, bool]], frees: bool
) -> None:
    log = LogFile(tmp_path_factory.mktemp("log") / "x.log", 3 * HEAD_BYTES)
    os.close(log.open())
    written = heard = 0
    with nullcontext() if frees else patch("gavel.runtime.agent.logs._punch_hole", return_value=False):
        for count, trims, reads in [*steps, (0, True, True)]:
            append(log, b"x" * count)
            written += count
            if trims:
                log.trim()
            while reads and (news := log.news())[1]:
                begin, data = news
                assert begin >= heard
                assert data == b"x" * len(data)
                heard = begin + len(data)
    assert heard == written or not frees  # without holes the end of a log that has grown too long is gone


def test_a_deleted_log_does_no_harm(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "x.log", 4 * HEAD_BYTES)
    os.close(log.open())
    append(log, b"x" * 10 * HEAD_BYTES)
    log.path.unlink()
    log.trim()
    log.tidy()
    assert log.news() == (0, log.tail()) == (0, b"")


# ---- the rest ----


@given(
    st.integers(-31, 255) | st.just(0),
    st.builds(
        LastWords,
        done=st.booleans(),
        stopped=st.booleans(),
        failed=st.none() | st.just("bad"),
        blameless=st.booleans(),
    ),
    st.none() | st.just("asked"),
    st.booleans(),
)
def test_every_end_is_judged_by_its_last_words_and_then_by_the_order_of_facts(
    code: int, words: LastWords, asked: str | None, reached: bool
) -> None:
    verdict = judge(code, words, asked, reached=reached)
    if words.failed:
        assert (verdict.ending, verdict.reason, verdict.blameless) == (Ending.CRASHED, "bad", words.blameless)
    elif words.done:
        assert verdict.ending is Ending.DONE
    elif words.stopped or reached:
        assert verdict.ending is Ending.LEFT
    else:
        assert verdict.ending is (Ending.DONE if code == 0 else Ending.CRASHED)
    assert verdict.reason


def test_ports_are_not_given_twice() -> None:
    taken: set[int] = set()
    ports = [free_port(taken) for _ in range(50)]
    assert len(set(ports)) == 50
    assert taken == set(ports)


def test_a_server_is_reached_where_the_scheduler_reaches_it() -> None:
    assert own_address("127.0.0.1:7077") == "127.0.0.1"
    assert own_address("no-such-host.invalid:7077") == "127.0.0.1"


def settings(directory: Path) -> AgentSettings:
    return AgentSettings({"v100": (0,)}, directory / "state", directory / "checkpoints")


def test_settings_that_cannot_work_are_refused_before_anything_starts(tmp_path: Path) -> None:
    settings(tmp_path).check()
    (tmp_path / "file").touch()
    for wrong, sentence in (
        ({"state": tmp_path / "file"}, "cannot create the directory"),
        ({"checkpoints": Path("/proc/here")}, "cannot create the directory"),
        ({"checkpoints": Path("/proc/self")}, "not writable"),
        ({"name": ""}, "name"),
        ({"scheduler": "nowhere"}, "HOST:PORT"),
        ({"scheduler": "host:99999"}, "HOST:PORT"),
        ({"accelerators": {}}, "no accelerators"),
        ({"accelerators": {"h100": (0,)}, "emulation": emulated("v100=1")[1]}, "'h100' has no throughputs"),
    ):
        with pytest.raises(InputError, match=sentence):
            replace(settings(tmp_path), **wrong).check()
