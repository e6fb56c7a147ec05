"""The template of a job that names none."""

from __future__ import annotations

import pytest

from gavel.runtime.template import LONGEST, default_template


@pytest.mark.parametrize(
    ("command", "template"),
    [
        ("python train.py", "python train.py"),
        ("python train.py --seed 1 --lr 1e-3", "python train.py --seed --lr"),
        ("python train.py --seed=2 --lr=1e-2", "python train.py --seed --lr"),
        ("python train.py --shift -0.5 --amp", "python train.py --shift --amp"),
        ("python train.py runs/7 100", "python train.py"),
        ("/opt/lab/bin/python -u /home/ada/train.py 3", "python -u train.py"),
        ("python -m lab.train --seed 4", "python -m lab.train --seed"),
        ("torchrun --nproc-per-node 2 train.py --epochs 3", "torchrun --nproc-per-node train.py --epochs"),
        ("env SEED=3 python train.py", "python train.py"),
        ("/usr/bin/env -i SEED=3 ./train.sh", "train.sh"),
        ("sleep 30", "sleep 30"),
        ("env", "env"),
        ("env SEED=3", "env SEED=3"),
        ("- -", "- -"),
    ],
)
def test_values_of_arguments_are_left_out(command: str, template: str) -> None:
    assert default_template(command.split()) == template


def test_a_program_on_the_command_line_is_kept_and_its_arguments_are_not() -> None:
    code = "import lab; lab.train()"
    assert default_template(["python", "-c", code, "--seed", "3"]) == f"python -c {code}"


def test_it_is_never_long_or_empty() -> None:
    assert len(default_template(["python", "-c", "x" * 500])) == LONGEST
    assert default_template(["/"])
