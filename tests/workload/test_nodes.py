"""Lists of nodes as clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.cluster import Cluster, Server, parse_cluster
from gavel.core.errors import InputError
from gavel.workload.nodes import find_cluster, read_nodes
from gavel.workload.rows import Source

TYPES = ("v100", "p100")
NODES = """\
sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,P100
n1,96000,786432,8,V100M32
n2,96000,786432,4,V100M16
n3,96000,786432,4,T4
n4,96000,786432,0,
n5,96000,786432,8,V100M32
n6,96000,786432,2,T4
"""


def test_nodes_become_servers_with_their_names_and_unknown_models_are_left_out_with_a_note() -> None:
    found = read_nodes(Source("nodes.csv", NODES), TYPES)
    assert found.cluster == Cluster(
        (Server("n0", "p100", 2), Server("n1", "v100", 8), Server("n2", "v100", 4), Server("n5", "v100", 8))
    )
    assert (found.nodes, found.without_gpu, found.left_out) == (7, 1, {"T4": (2, 6)})
    assert found.notes() == (
        "left out 2 nodes with 6 GPUs of models that are not in the throughput table: T4 (2 nodes, 6 GPUs)",
        "left out 1 node without a GPU",
    )
    assert found.cluster.text() == "p100=1x2,v100=2x8+1x4"


def test_a_cluster_is_a_text_or_a_file_that_ends_in_csv(tmp_path: Path) -> None:
    file = tmp_path / "nodes.CSV"
    file.write_text(NODES)
    cluster, notes = find_cluster(str(file), per_server=4, types=TYPES)
    assert cluster.text() == "p100=1x2,v100=2x8+1x4"
    assert len(notes) == 2
    assert find_cluster("v100=8", per_server=2, types=TYPES) == (parse_cluster("v100=8", per_server=2), ())


@given(
    sizes=st.dictionaries(
        st.sampled_from(["v100", "p100", "k80"]), st.lists(st.integers(1, 16), min_size=1, max_size=9), min_size=1
    )
)
def test_the_text_of_a_cluster_means_the_same_servers(sizes: dict[str, list[int]]) -> None:
    servers = [Server(f"{kind}/{n}", kind, size) for kind, each in sizes.items() for n, size in enumerate(each)]
    again = parse_cluster(Cluster(tuple(servers)).text())
    assert {kind.name: sorted(kind.servers) for kind in again.types()} == {k: sorted(v) for k, v in sizes.items()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nodes.csv is empty; a list of nodes starts with a line that names its columns"),
        (
            "sn,gpu\nn0,1\n",
            "nodes.csv, line 1: column 'model' is missing; a list of nodes has at least: sn, gpu, model",
        ),
        (NODES.replace("n1,", "n0,"), "nodes.csv, line 3, column 'sn': 'n0' is also on line 2; names must differ"),
        (NODES.replace("n1,", ","), "nodes.csv, line 3, column 'sn': a value is missing"),
        (NODES.replace("144,2,", "144,two,"), "nodes.csv, line 2, column 'gpu': 'two' is not a number of GPUs"),
        (NODES.replace("144,2,", "144,-2,"), "nodes.csv, line 2, column 'gpu': '-2' is not a number of GPUs"),
        (NODES.replace("144,2,", "144,1e18,"), "nodes.csv, line 2, column 'gpu' must be at most 1,000,000,000"),
        (NODES.replace("144,2,", "144,1000001,"), "up to node 'n0' there are more than 1,000,000 accelerators of type"),
        ("sn,gpu,model\nn0,2,T4\n", "no node has a type of the throughput table (v100, p100); its models are T4"),
        ("sn,gpu,model\nn0,0,T4\n", "no node has a type of the throughput table (v100, p100); no node has a GPU"),
        ("sn,gpu,model\n", "no node has a type of the throughput table (v100, p100); no node has a GPU"),
    ],
)
def test_a_bad_list_is_one_sentence_that_names_the_place(text: str, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_nodes(Source("nodes.csv", text), TYPES)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
