"""Which devices an agent has: a fake nvidia-smi and rocm-smi play several machines, within what the agent was given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gavel.errors import InputError
from gavel.runtime.agent.accelerator_memory import known_memory, parse_memory
from gavel.runtime.agent.allotment import allotment, device_variables
from gavel.runtime.agent.discovery import Hardware, discovered, named_by_hand

GIB = 2**30
OLD = ("index", "uuid", "name")
MEMORY = (*OLD, "memory.total")
NEW = (*MEMORY, "mig.mode.current")


class Machine:
    """A server with a fake nvidia-smi."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        monkeypatch.setenv("PATH", f"{directory}:/bin:/usr/bin")

    def tool(self, name: str, script: str) -> None:
        tool = self.directory / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    def nvidia(self, *rows: str, fields: tuple[str, ...] = NEW, listed: str = "", code: int = 0) -> None:
        """A driver that knows these fields and prints these rows; `listed` is its answer to -L."""
        (self.directory / "rows").write_text("".join(f"{row}\n" for row in rows))
        (self.directory / "listed").write_text(listed)
        self.tool(
            "nvidia-smi",
            f"""
            case "$1" in
              --query-gpu={",".join(fields)}) cat {self.directory}/rows; exit {code};;
              -L) cat {self.directory}/listed;;
              *) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;;
            esac""",
        )

    def amd(self, *names: str) -> None:
        cards = {
            f"card{number}": {
                "Card series": name,
                "Unique ID": f"0x{number}{number}",
                "VRAM Total Memory (B)": "68702699520",
            }
            for number, name in enumerate(names)
        }
        self.tool("rocm-smi", f"echo 'WARNING: old'\necho '{json.dumps({**cards, 'system': {}})}'")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


V100 = [f"{number}, GPU-{number}aaa, Tesla V100-SXM2-16GB, 16160 MiB, [N/A]" for number in range(8)]
MIXED = [
    "0, GPU-aaaa, Tesla V100-SXM2-16GB, 16160 MiB, [N/A]",
    "1, GPU-bbbb, Tesla K80, 11441 MiB, [N/A]",
    "2, GPU-cccc, Tesla V100-SXM2-32GB, 32510 MiB, [N/A]",
]
A100 = [
    "0, GPU-1111, NVIDIA A100-SXM4-40GB, 40536 MiB, Enabled",
    "1, GPU-2222, NVIDIA A100-SXM4-40GB, 40536 MiB, Disabled",
]
SLICES = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1111)
  MIG 3g.20gb     Device  0: (UUID: MIG-aaaa-1)
  MIG 1g.5gb      Device  1: (UUID: MIG-bbbb-2)
  MIG 1g.5gb      Device  2: (UUID: MIG-bbcc-3)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2222)
"""


def shown(hardware: Hardware, environment: dict[str, str], type_name: str) -> str:
    """What a job on all accelerators of a type gets as CUDA_VISIBLE_DEVICES."""
    devices = hardware.accelerators[type_name]
    return device_variables(devices, hardware.names, environment, hardware.vendor)["CUDA_VISIBLE_DEVICES"]


def test_eight_cards_of_one_type_have_the_nominal_memory(machine: Machine) -> None:
    machine.nvidia(*V100)
    found = discovered({})
    assert found.accelerators == {"v100": tuple(range(8))}
    assert found.memory == {"v100": 16 * GIB}
    assert shown(found, {}, "v100") == "0,1,2,3,4,5,6,7"


def test_types_may_be_mixed_and_the_smallest_card_counts(machine: Machine) -> None:
    machine.nvidia(*MIXED)
    found = discovered({})
    assert found.accelerators == {"v100": (0, 2), "k80": (1,)}
    assert found.memory == {"v100": 16 * GIB, "k80": 12 * GIB}


@pytest.mark.parametrize("fields", [OLD, MEMORY])
def test_an_old_driver_that_lacks_fields_still_works(machine: Machine, fields: tuple[str, ...]) -> None:
    machine.nvidia(*(", ".join(row.split(", ")[: len(fields)]) for row in MIXED), fields=fields)
    found = discovered({})
    assert found.accelerators == {"v100": (0, 2), "k80": (1,)}
    assert bool(found.memory) == (fields is MEMORY)


@pytest.mark.parametrize(
    ("given", "types", "names"),
    [
        ("1", {"k80": (0,)}, {0: "1"}),
        ("2, 1", {"v100": (0,), "k80": (1,)}, {0: "2", 1: "1"}),
        ("GPU-c,gpu-aa", {"v100": (0, 1)}, {0: "GPU-c", 1: "gpu-aa"}),
        ("0,-1,1", {"v100": (0,)}, {0: "0"}),
    ],
)
def test_only_the_devices_that_the_agent_was_given_count_and_keep_their_names(
    machine: Machine, given: str, types: dict[str, tuple[int, ...]], names: dict[int, str]
) -> None:
    machine.nvidia(*MIXED)
    found = discovered({"CUDA_VISIBLE_DEVICES": given})
    assert (found.accelerators, found.names) == (types, names)


@pytest.mark.parametrize("given", ["7", "GPU-", "MIG-1"])
def test_a_device_that_the_driver_does_not_know_is_refused(machine: Machine, given: str) -> None:
    machine.nvidia(*MIXED)
    with pytest.raises(InputError, match=f"CUDA_VISIBLE_DEVICES names {given}, .*for example v100=4"):
        discovered({"CUDA_VISIBLE_DEVICES": given})


def test_mig_slices_are_types_of_their_own_and_are_used_by_uuid(machine: Machine) -> None:
    machine.nvidia(*A100, listed=SLICES)
    found = discovered({})
    assert found.accelerators == {"a100-3g.20gb": (0,), "a100-1g.5gb": (1, 2), "a100": (3,)}
    assert found.memory == {"a100-3g.20gb": 20 * GIB, "a100-1g.5gb": 5 * GIB, "a100": 40 * GIB}
    assert shown(found, {}, "a100-1g.5gb") == "MIG-bbbb-2,MIG-bbcc-3"
    given = {"CUDA_VISIBLE_DEVICES": "MIG-bbc,1"}
    found = discovered(given)
    assert found.accelerators == {"a100-1g.5gb": (0,), "a100": (1,)}
    assert shown(found, given, "a100-1g.5gb") == "MIG-bbcc-3"


def test_a_card_in_mig_mode_without_slices_is_left_out(machine: Machine) -> None:
    machine.nvidia(*A100, listed="")
    found = discovered({})
    assert found.accelerators == {"a100": (1,)}
    assert "no slices" in found.warnings[0]


@pytest.mark.parametrize(
    "broken",
    [
        "1, GPU-1aaa, [Unknown Error], [Unknown Error], [N/A]",
        "1, GPU-1aaa, Tesla V100-SXM2-16GB, ERR!, [N/A]",
        "1, GPU-1aaa, [GPU is lost], [GPU is lost], [GPU is lost]",
        "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system",
    ],
)
@pytest.mark.parametrize("code", [0, 15])
def test_a_broken_card_is_left_out_with_a_warning(machine: Machine, broken: str, code: int) -> None:
    machine.nvidia(V100[0], broken, V100[2], code=code)
    found = discovered({})
    assert found.accelerators == {"v100": (0, 2)}
    assert "left out" in found.warnings[0]
    assert shown(found, {}, "v100") == "0,2"
    with pytest.raises(InputError, match="names 1, which nvidia-smi does not list as one GPU that works"):
        discovered({"CUDA_VISIBLE_DEVICES": "0,1"})


def test_if_every_card_is_broken_the_agent_does_not_start(machine: Machine) -> None:
    machine.nvidia("0, GPU-1aaa, [Unknown Error], [Unknown Error], [N/A]", code=15)
    with pytest.raises(InputError, match=r"nvidia-smi does not answer .*name the accelerators"):
        discovered({})


@pytest.mark.parametrize("memory", ["[N/A]", "[Not Supported]"])
def test_a_board_without_memory_of_its_own_is_not_broken(machine: Machine, memory: str) -> None:
    machine.nvidia(f"0, GPU-1aaa, NVIDIA GB10, {memory}, [N/A]")
    assert discovered({}) == Hardware({"gb10": (0,)}, {0: "0"}, {}, "nvidia", ())


def test_inside_slurm_only_the_granted_device_is_used(machine: Machine) -> None:
    """Slurm may hide the others, and then the driver numbers what is left from 0."""
    machine.nvidia(*V100)
    assert discovered({"SLURM_STEP_GPUS": "1", "SLURM_JOB_GPUS": "0-3"}).names == {0: "1"}
    machine.nvidia("0, GPU-1aaa, Tesla V100-SXM2-16GB, 16160 MiB, [N/A]")
    assert discovered({"SLURM_JOB_GPUS": "1"}).names == {0: "0"}
    assert discovered({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "1"}).names == {0: "0"}


@pytest.mark.parametrize(("value", "count"), [("all", 8), ("void", 8), ("", 8), ("GPU-1a,GPU-2a", 2), ("3,5", 2)])
def test_inside_kubernetes_the_granted_devices_are_used(machine: Machine, value: str, count: int) -> None:
    machine.nvidia(*V100)
    assert len(discovered({"NVIDIA_VISIBLE_DEVICES": value}).accelerators["v100"]) == count


def test_amd_cards_are_found_where_there_is_no_nvidia_smi(machine: Machine) -> None:
    machine.amd("AMD Instinct MI250X", "AMD Instinct MI250X")
    found = discovered({})
    assert (found.accelerators, found.memory, found.vendor) == ({"mi250x": (0, 1)}, {"mi250x": 64 * GIB}, "amd")
    assert device_variables([1], found.names, {}, "amd")["HIP_VISIBLE_DEVICES"] == "1"


def test_on_amd_hip_counts_within_what_rocr_shows(machine: Machine) -> None:
    machine.amd(*["AMD Instinct MI100"] * 4)
    environment = {"ROCR_VISIBLE_DEVICES": "1,GPU-33", "HIP_VISIBLE_DEVICES": "1"}
    found = discovered(environment)
    assert found.names == {0: "GPU-33"}
    assert device_variables([0], found.names, environment, "amd") == {
        "ROCR_VISIBLE_DEVICES": "GPU-33",
        "HIP_VISIBLE_DEVICES": "0",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    equal = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "2,3")
    assert discovered(equal).names == {0: "2", 1: "3"}


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0;1"}, "'0;1' is no device; give numbers or UUIDs"),
        ({"CUDA_VISIBLE_DEVICES": "1e9"}, "'1e9' is no device"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,0"}, "names device 0 twice"),
        ({"CUDA_VISIBLE_DEVICES": "0-9999"}, "a server has at most 4,096"),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "2"}, "contradict each other; unset one"),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "3"}, "Slurm has granted 1"),
        ({"ROCR_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "1"}, "counts within"),
    ],
)
def test_contradictions_and_absurd_values_are_refused_in_one_sentence(
    environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        allotment(environment)


@pytest.mark.parametrize("nothing", ["", "-1", "NoDevFiles"])
def test_an_agent_that_was_given_nothing_does_not_start(machine: Machine, nothing: str) -> None:
    machine.nvidia(*V100)
    with pytest.raises(InputError, match="gives this agent no accelerator"):
        discovered({"CUDA_VISIBLE_DEVICES": nothing})


@pytest.mark.parametrize(
    ("script", "sentence"), [("exit 9", "does not answer"), ("true", "finds no GPU"), (None, "not installed")]
)
def test_auto_without_gpus_says_what_to_do(machine: Machine, script: str | None, sentence: str) -> None:
    if script is not None:
        machine.tool("nvidia-smi", script)
    with pytest.raises(InputError, match=f"{sentence}.*for example v100=4"):
        discovered({})


def test_the_memory_of_types_named_by_hand_is_stated_or_listed_or_known(machine: Machine) -> None:
    machine.nvidia(MIXED[2])
    found = named_by_hand({"v100": (0,), "t4": (1,), "mine": (2,)}, {})
    assert known_memory(found.accelerators, found.memory, {}) == {"v100": 32 * GIB, "t4": 16 * GIB}
    stated = parse_memory("v100=16G, mine=1.5G", found.accelerators)
    assert known_memory(found.accelerators, found.memory, stated)["mine"] == 3 * GIB // 2


@pytest.mark.parametrize("text", ["", "v100", "v100=x", "v100=0", "k80=1G", "v100=1G,v100=2G", "v100=2000T"])
def test_an_absurd_accelerator_memory_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"memory|size"):
        parse_memory(text, ["v100"])
