"""The default template of a job: its program, script and options without their values.

So all jobs of a sweep over seeds have one template and share what is learned about its speed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

LONGEST = 100
"""Most characters of a template."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SCRIPT = re.compile(r".\.(py|sh|R|jl|lua|pl|rb|js|ipynb)$")
_NUMBER = re.compile(r"-\.?\d")


def default_template(command: Sequence[str]) -> str:
    """The template of a command.

    >>> default_template(["env", "CUDA_CACHE=1", "python", "train.py", "--seed", "7", "--amp", "--lr=0.1", "data"])
    'python train.py --seed --amp --lr'
    >>> default_template(["/usr/bin/torchrun", "--nproc-per-node", "2", "train.py"])
    'torchrun --nproc-per-node train.py'
    >>> default_template(["python", "-m", "lab.train", "3"])
    'python -m lab.train'
    """
    words = _without_environment(command)
    if not words:
        return " ".join(command)[:LONGEST]
    kept, script = [PurePath(words[0]).name or words[0]], ""
    before = ""
    for word in words[1:]:
        if before == "-c":
            kept.append(word)  # the program itself; its arguments follow
            break
        if word.startswith("-") and word.strip("-") and not _NUMBER.match(word):
            before = word.partition("=")[0]
            kept.append(before)
            continue
        is_value = before.startswith("-") and before != "-m" and not _SCRIPT.search(word)
        if not script and not is_value:
            script = word
            kept.append(PurePath(word).name or word)
        before = ""
    return " ".join(kept)[:LONGEST]


def _without_environment(command: Sequence[str]) -> list[str]:
    """A command without `env` and the variables it sets."""
    words = list(command)
    if words and PurePath(words[0]).name == "env":
        words = words[1:]
        while words and (_ASSIGNMENT.match(words[0]) or words[0].startswith("-")):
            words = words[1:]
    return words
