"""Our own trace files: what is written is read back, what may be left out, and one sentence for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.errors import InputError
from gavel.core.jobs import is_path
from gavel.core.throughputs import builtin_table
from gavel.limits import LARGEST, LONGEST_SECONDS, SMALLEST
from gavel.workload.formats import read_trace, recognise, write_trace
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()
positive = st.floats(SMALLEST, LARGEST)


def in_table_order(names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in TABLE.types if name in names)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ids = draw(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True))
    arrivals = sorted(draw(st.floats(0.0, LONGEST_SECONDS)) for _ in ids)
    jobs = []
    for name, arrival in zip(ids, arrivals, strict=True):
        template, workers = draw(st.sampled_from(TABLE.profiles))
        jobs.append(
            TraceJob(
                id=name,
                template=template,
                workers=workers,
                steps=draw(positive),
                arrival=arrival,
                weight=draw(positive),
                entity=draw(st.none() | st.text(min_size=1, max_size=8).filter(is_path)),
                deadline_seconds=draw(st.none() | st.floats(SMALLEST, LONGEST_SECONDS)),
                command=draw(st.text(max_size=20)),
                types=draw(st.none() | st.sets(st.sampled_from(TABLE.types), min_size=1).map(in_table_order)),
            )
        )
    return Trace(tuple(jobs))


@given(trace=traces())
def test_what_is_written_is_read_back_the_same(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "round-trip.csv"
    write_trace(trace, file)
    assert read_trace(file, table=TABLE, format="gavel") == trace
    assert recognise(file) == "gavel"


def read(tmp_path: Path, text: str) -> Trace:
    file = tmp_path / "t.csv"
    file.write_text(text, encoding="utf-8")
    return read_trace(file, table=TABLE)


def test_only_template_steps_and_arrival_are_required_in_any_order(tmp_path: Path) -> None:
    trace = read(tmp_path, "steps, arrival_seconds ,template\n100, 0,A3C\n\n2e3,7.5, CycleGAN \n")
    assert trace.jobs == (
        TraceJob("job0", "A3C", 1, 100.0, 0.0),
        TraceJob("job1", "CycleGAN", 1, 2000.0, 7.5),
    )
    assert trace.notes == ()


def test_a_spreadsheets_byte_order_mark_and_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(b"\xef\xbb\xbftemplate,steps,arrival_seconds\r\nA3C,1,0\r\n")
    assert read_trace(file, table=TABLE).jobs == (TraceJob("job0", "A3C", 1, 1.0, 0.0),)


def test_arrivals_out_of_order_are_sorted_with_a_note(tmp_path: Path) -> None:
    trace = read(tmp_path, "id,template,steps,arrival_seconds\na,A3C,1,5\nb,A3C,1,0\nc,A3C,1,5\n")
    assert [job.id for job in trace.jobs] == ["b", "a", "c"]
    assert trace.notes == ("arrivals were out of order; the jobs were sorted by arrival",)


@pytest.mark.parametrize(
    ("cell", "types"),
    [("", None), ("v100", ("v100",)), (" p100 | v100 ", ("v100", "p100")), ("k80|k80|", ("k80",)), ("|", None)],
)
def test_types_have_bars_between_them_and_none_means_all(
    cell: str, types: tuple[str, ...] | None, tmp_path: Path
) -> None:
    trace = read(tmp_path, f"template,steps,arrival_seconds,types\nA3C,1,0,{cell}\n")
    assert [job.types for job in trace.jobs] == [types]


def test_more_workers_than_the_table_lists_are_scaled_with_a_note(tmp_path: Path) -> None:
    trace = read(tmp_path, "template,workers,steps,arrival_seconds\nLM (batch size 5),16,1,0\n")
    assert trace.jobs[0].workers == 16
    assert trace.notes == (
        (
            "the throughput table does not list 16 workers, which 1 job requests; the rates are scaled from the "
            "numbers that it lists (docs/throughputs.md)"
        ),
    )


HEADER = "id,template,workers,steps,arrival_seconds,weight,deadline_seconds\n"
GOOD = "a,A3C,1,100,0,1,\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv is empty; a trace has at least one job"),
        (" \n\n", "t.csv is empty"),
        (HEADER, "t.csv has no jobs"),
        ("template,steps\nA3C,1\n", "line 1: column 'arrival_seconds' is missing; a gavel trace has at least:"),
        ("template,steps,steps,arrival_seconds\nA3C,1,1,0\n", "line 1: column 'steps' is named twice"),
        ("template,steps,arrival_seconds,prio\nA3C,1,0,1\n", "column 'prio' is not known; known are: id, template"),
        (HEADER + GOOD + "b,A3C,1,x,0,1,\n", "t.csv, line 3, column 'steps': 'x' is not a number of steps"),
        (HEADER + "a,A3C,1,-5,0,1,\n", "line 2, column 'steps': '-5' is not a number of steps; give one greater than"),
        (HEADER + "a,A3C,1,0,0,1,\n", "column 'steps': '0' is not"),
        (HEADER + "a,A3C,1,nan,0,1,\n", "column 'steps': 'nan' is not"),
        (HEADER + "a,A3C,1,1e999,0,1,\n", "column 'steps' must be at most 1e+15, not '1e999'"),
        (HEADER + "a,A3C,1,1_0,0,1,\n", "column 'steps': '1_0' is not"),
        (HEADER + "a,A3C,1,,0,1,\n", "line 2, column 'steps': a value is missing"),
        (HEADER + "a,,1,1,0,1,\n", "line 2, column 'template': a value is missing"),
        (HEADER + "a,A3C,0,1,0,1,\n", "column 'workers': '0' is not a number of workers; give 1 or more"),
        (HEADER + "a,A3C,1.5,1,0,1,\n", "column 'workers': '1.5' is not a number of workers"),
        (
            HEADER + "a,A3C,2,1,0,1,\n",
            "column 'workers': template 'A3C' has no throughputs with 2 workers; use one of: 1",
        ),
        (HEADER + "a,A3C,1,1,-1,1,\n", "column 'arrival_seconds': '-1' is not an arrival"),
        (HEADER + "a,A3C,1,1,0,0,\n", "column 'weight': '0' is not a weight"),
        (HEADER + "a,A3C,1,1,0,1,0\n", "column 'deadline_seconds': '0' is not a deadline"),
        (
            "template,steps,arrival_seconds,types\nA3C,1,0,v100|P100\n",
            "t.csv, line 2, column 'types': 'P100' is not a type of the throughput table; did you mean 'p100'?",
        ),
        (
            "template,steps,arrival_seconds,types\nA3C,1,0,tpu\n",
            "line 2, column 'types': 'tpu' is not a type of the throughput table; known are: v100, p100, k80",
        ),
        (HEADER + GOOD + GOOD, "t.csv, line 3, column 'id': 'a' is also on line 2; ids must differ"),
        (HEADER + "a,A3C,1,1,0\n", "line 2: 5 columns, but the first line has 7"),
        (HEADER + 'a,"A3C,1,1,0,1,\n', "line 2: not a valid line of a table (unexpected end of data)"),
    ],
)
def test_a_mistake_is_one_sentence_with_line_and_column(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        read(tmp_path, text)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_unknown_templates_are_listed_once_each_with_the_nearest_known(tmp_path: Path) -> None:
    lines = ["A3C,1,0", "ResNet50,1,0", "ResNet50,1,1", "A3D,1,2"]
    with pytest.raises(InputError) as refusal:
        read(tmp_path, "\n".join(["template,steps,arrival_seconds", *lines]))
    said = str(refusal.value)
    assert "template 'ResNet50' (line 3; closest: 'ResNet-50 (" in said
    assert "template 'A3D' (line 5; closest: 'A3C')" in said
    assert said.count("ResNet50") == 1


def test_a_long_list_of_unknown_templates_is_cut_short(tmp_path: Path) -> None:
    lines = [f"x{number},1,0" for number in range(9)]
    with pytest.raises(InputError, match=r"'x4' \(line 6; no similar name\) and 4 more; rename them"):
        read(tmp_path, "\n".join(["template,steps,arrival_seconds", *lines]))


def test_unreadable_and_unwritable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nowhere.csv: no such file"):
        read_trace(tmp_path / "nowhere.csv", table=TABLE)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        read_trace(binary, table=TABLE)
    with pytest.raises(InputError, match=r"cannot write .*: no such file"):
        write_trace(Trace((TraceJob("a", "A3C", 1, 1.0, 0.0),)), tmp_path / "none" / "t.csv")
