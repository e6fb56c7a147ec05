"""Jobs in virtual environments, with environment modules and in containers; a fake runtime records its arguments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from agent_stage import LINK, Session, attached, play, python, shell, start, stop
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.field_checks import FieldError
from gavel.client.requests import JobRequest
from gavel.errors import InputError
from gavel.runtime.agent.container_runtimes import (
    RUNTIMES,
    CannotContainError,
    Contained,
    Runtime,
    contained,
    parse_runtimes,
)
from gavel.runtime.agent.state import Removal, end_marked, mark_of
from gavel.wire import gavel_pb2 as pb
from needs import needs_modules, needs_podman

VALUE = "s3cr3t-value"

FAKE = """#!{python} -IS
import json, os, sys
name = os.path.basename(sys.argv[0])
with open({record!r}, "a") as file:
    file.write(json.dumps([name, sys.argv[1:], dict(os.environ)]) + "\\n")
if sys.argv[1] in ("rm",):
    sys.exit(0)
at = next(i for i, word in enumerate(sys.argv) if word.endswith(("image:1", ".sif")))
inside = {{"PATH": os.environ["PATH"]}}
for word in sys.argv[2:at]:
    if word.startswith("--env="):
        inside[word[6:]] = os.environ[word[6:]]
    if word.startswith("--env-file="):
        with open(word[11:]) as file:
            inside.update(line.rstrip("\\n").split("=", 1) for line in file)
prefix = name.upper() + "ENV_"
inside.update((key[len(prefix):], value) for key, value in os.environ.items() if key.startswith(prefix))
os.execvpe(sys.argv[at + 1], sys.argv[at + 1:], inside)
"""


class Runtimes:
    """Fake container runtimes on a path of their own."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        self.record = folder / "record"
        self.path = folder / "bin"
        self.path.mkdir()
        for kind in kinds:
            program = self.path / kind
            program.write_text(FAKE.format(python=sys.executable, record=str(self.record)))
            program.chmod(0o755)

    def calls(self) -> list[tuple[str, list[str], dict[str, str]]]:
        return [tuple(json.loads(line)) for line in self.record.read_text().splitlines()]

    @asynccontextmanager
    async def agent(self, folder: Path, **fields: Any) -> AsyncIterator[Session]:
        environment = {"PATH": f"{self.path}:/usr/bin:/bin", "HOME": "/home/agent", "NCCL_DEBUG": "WARN", "OTHER": "1"}
        kinds = tuple(path.name for path in self.path.iterdir())  # not the real ones of this machine
        async with attached(folder, environment=environment, container_runtimes=kinds, **fields) as (_, session):
            yield session


SHOWS = 'echo "$MINE $KEY $GAVEL_JOB_ID $HOME ${OTHER-none} $NCCL_DEBUG"'
WANTED = {"container": "image:1", "environment": {"MINE": "my own", "HOME": "/inside"}}


@pytest.mark.parametrize("kind", RUNTIMES)
def test_a_job_runs_in_its_container_and_no_value_is_on_the_command_line(tmp_path: Path, kind: str) -> None:
    fakes = Runtimes(tmp_path, kind)

    async def scene() -> None:
        async with fakes.agent(tmp_path) as session:
            session.send(start("1", shell(SHOWS), request=WANTED, secrets={"KEY": VALUE}))
            end = await session.ended("1")
            assert (end.how, end.log_tail.decode()) == (pb.TaskEnded.DONE, f"my own {VALUE} 1 /inside none WARN\n")
        started, *removed = fakes.calls()
        name, words, environment = started
        assert name == kind
        assert not [word for word in words if VALUE in word or "my own" in word or "/inside" in word]
        assert environment["HOME"] == "/home/agent"  # the runtime's own is not that of the job
        mounts = [word for word in words if word.startswith(("--mount=", "--bind="))]
        assert any(str(tmp_path / "checkpoints" / "1") in mount for mount in mounts)
        assert any(mount.startswith(("--mount=type=bind,source=/tmp/gavel-", "--bind=/tmp/gavel-")) for mount in mounts)
        if kind in ("podman", "docker"):
            named = next(word.removeprefix("--name=") for word in words if word.startswith("--name="))
            assert named.startswith("gavel-")
            assert named.endswith("-1-1-0")
            assert "--rm" in words
            assert [call[1][0] for call in removed] == ["rm"]
            assert removed[0][1][-1] == named
        else:
            assert removed == []

    play(scene())
    assert not Path((tmp_path / "state" / "sockets").read_text()).exists()  # with the files of variables


def test_a_container_is_removed_by_its_name_whatever_its_process_does(tmp_path: Path) -> None:
    """Asked and deaf, killed at once, or left by an agent that is gone."""
    fakes = Runtimes(tmp_path, "docker")
    deaf = python(LINK + "signal.signal(15, signal.SIG_IGN); print('running'); time.sleep(1000)")

    async def scene() -> None:
        async with fakes.agent(tmp_path, checkpoint_grace=0.1, terminate_grace=0.1) as session:
            for job in "12":
                session.send(start(job, deaf, request={"container": "image:1"}))
                await session.logged(job, "running")
            session.send(stop("1"))
            session.send(stop("2", at_once=True))
            for job in "12":
                await session.ended(job)
            removed = [words[-1] for _, words, _ in fakes.calls() if words[0] == "rm"]
            assert sorted(name[-5:] for name in removed) == ["1-1-0", "2-1-0"]

    play(scene())


def test_a_container_whose_guard_was_killed_is_removed_by_the_agent(tmp_path: Path) -> None:
    fakes = Runtimes(tmp_path, "podman")

    async def scene() -> None:
        async with fakes.agent(tmp_path) as session:
            session.send(start("1", shell("echo running; exec sleep 1000"), request={"container": "image:1"}))
            await session.logged("1", "running")
            (guard,) = [int(file.name) for file in (tmp_path / "state" / "guards").iterdir()]
            os.kill(guard, 9)
            await session.ended("1")
            assert [words[:3] for _, words, _ in fakes.calls() if words[0] == "rm"] == [["rm", "--force", "--ignore"]]

    play(scene())


def test_a_mark_of_a_container_has_nothing_of_the_job(tmp_path: Path) -> None:
    """An agent that starts again removes the container by it."""
    fakes = Runtimes(tmp_path, "podman")

    async def scene() -> None:
        async with fakes.agent(tmp_path) as session:
            session.send(start("1", shell("echo running; exec sleep 1000"), request=WANTED, secrets={"KEY": VALUE}))
            await session.logged("1", "running")
            (file,) = (tmp_path / "state" / "guards").iterdir()
            mark = file.read_text()
            assert VALUE not in mark
            removal = json.loads(mark)["removal"]
            assert removal["environment"] == {"PATH": f"{fakes.path}:/usr/bin:/bin", "HOME": "/home/agent"}
            assert removal["command"][1] == "rm"

    play(scene())


def test_an_agent_that_starts_again_removes_the_containers_of_the_one_before(tmp_path: Path) -> None:
    removal = Removal(["/bin/sh", "-c", 'echo "$HOME" > ' + str(tmp_path / "removed")], {"HOME": "/home/agent"})
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    mark = mark_of(int(gone.stdout), "/no/socket", None, removal)
    end_marked(type(mark)(**json.loads(json.dumps(asdict(mark)))))
    assert (tmp_path / "removed").read_text() == "/home/agent\n"


@pytest.mark.parametrize(
    ("kinds", "request_", "reason"),
    [
        ((), {"container": "image:1"}, "this server has neither podman, docker nor apptainer"),
        (("docker",), {"container": "/images/a.sif"}, "is for apptainer, and this server has docker"),
        (("podman",), {"container": "library://a/b:1"}, "is for apptainer, and this server has podman"),
        (("docker",), {"container": "image:1", "working_directory": "/data/a,b"}, "cannot be mounted"),
        (("apptainer",), {"container": "image:1", "working_directory": "/data:/etc"}, "cannot be mounted"),
        (("docker",), {"container": "image:1", "environment": {"A*": "x"}}, "'A*' cannot be passed to a container"),
        (("docker",), {"container": "image:1", "environment": {"HOME": "a\nb=c"}}, "HOME has several lines"),
    ],
)
def test_a_job_that_cannot_be_contained_here_fails_with_a_sentence(
    tmp_path: Path, kinds: tuple[str, ...], request_: dict[str, Any], reason: str
) -> None:
    fakes = Runtimes(tmp_path, *kinds)

    async def scene() -> None:
        async with attached(tmp_path, environment={"PATH": str(fakes.path)}) as (_, session):
            session.send(start("1", shell("true"), request=request_))
            end = await session.ended("1")
            assert (end.how, end.hopeless) == (pb.TaskEnded.CRASHED, True)
            assert reason in end.reason

    play(scene())


def test_a_container_that_does_not_start_is_told_from_a_job_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text("#!/bin/sh\n[ $1 = rm ] || echo no such image\nexit 125\n")
    (folder / "docker").chmod(0o755)

    async def scene() -> None:
        environment = {"PATH": f"{folder}:/usr/bin:/bin"}
        async with attached(tmp_path, environment=environment, container_runtimes=("docker",)) as (_, session):
            session.send(start("1", shell("true"), request={"container": "image:1"}))
            end = await session.ended("1")
            assert end.reason == "its container 'image:1' could not be started: see the end of its log"
            assert (end.hopeless, end.log_tail) == (False, b"no such image\n")

    play(scene())


# ---- command lines ----


def what(**changes: Any) -> Contained:
    told: dict[str, Any] = {
        "image": "image:1",
        "name": "gavel-a-1-1-0",
        "command": ("train",),
        "directory": "",
        "mounts": {},
        "variables": {"CUDA_VISIBLE_DEVICES": "2,3", "RANK": "1"},
        "devices": (),
        "uid": 1000,
        "groups": (1000, 44),
        "steering_file": "/run/1.env",
    }
    return Contained(**{**told, **changes})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("podman", ["--device=nvidia.com/gpu=2", "--device=nvidia.com/gpu=GPU-5f", "--userns=keep-id"]),
        ("docker", ['--gpus="device=2,GPU-5f"', "--user=1000:1000", "--group-add=44"]),
        ("apptainer", ["--nv"]),
        ("singularity", ["--nv"]),
    ],
)
def test_a_container_has_the_devices_and_the_user_of_its_job(kind: str, words: list[str]) -> None:
    made = contained(Runtime(kind, f"/usr/bin/{kind}"), what(devices=("2", "GPU-5f")))
    assert set(words) <= set(made.command)
    # A container that has only these devices numbers them by itself; apptainer has all, and needs to be told.
    visible = [name for name in made.environment if name.endswith("CUDA_VISIBLE_DEVICES")]
    assert bool(visible) == (kind in ("apptainer", "singularity"))


def test_podman_of_root_maps_the_user_as_docker_does() -> None:
    assert "--user=0:0" in contained(Runtime("podman", "/usr/bin/podman"), what(uid=0, groups=(0,))).command


@pytest.mark.parametrize(
    ("kind", "image", "named"),
    [
        ("docker", "docker://team/train:2", "team/train:2"),
        ("podman", "registry.example:5000/a@sha256:12", "registry.example:5000/a@sha256:12"),
        ("apptainer", "team/train:2", "docker://team/train:2"),
        ("apptainer", "/images/train.sif", "/images/train.sif"),
        ("apptainer", "train.sif", "train.sif"),
        ("singularity", "library://a/b", "library://a/b"),
    ],
)
def test_images_of_registries_have_the_same_name_for_all_runtimes(kind: str, image: str, named: str) -> None:
    command = contained(Runtime(kind, f"/usr/bin/{kind}"), what(image=image)).command
    assert command[-2:] == (named, "train")


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def test_a_container_with_a_terminal_is_told_so() -> None:
    assert "--tty" in contained(Runtime("docker", "/x"), what(terminal=True)).command
    assert "--tty" not in contained(Runtime("docker", "/x"), what()).command


@given(
    kind=st.sampled_from(RUNTIMES),
    path=TEXTS.map("/".__add__),
    command=st.lists(TEXTS, min_size=1, max_size=3),
    name=TEXTS,
    value=TEXTS,
)
def test_nothing_that_a_job_says_becomes_an_option_of_the_runtime(
    kind: str, path: str, command: list[str], name: str, value: str
) -> None:
    plain = contained(Runtime(kind, "/x"), what(directory="/dir", mounts={"/dir": True}, variables={"A": "b"}))
    try:
        told = what(directory=path, mounts={path: True}, variables={name: value}, command=tuple(command))
        made = contained(Runtime(kind, "/x"), told)
    except CannotContainError:
        return
    before = made.command[: len(made.command) - len(command) - 1]
    options = [word.partition("=")[0] for word in plain.command[:-2]]
    steered = {"--env-file"} if made.steering else set()
    assert {word.partition("=")[0] for word in before} <= {*options, *steered, "--env"}
    mounts = [word for word in before if word.startswith(("--mount=", "--bind="))]
    assert len(mounts) == 1
    assert mounts[0].count(",") == (2 if kind in ("podman", "docker") else 0)
    assert made.steering.count("\n") <= 1


HOSTILE = [
    "-v/:/host",
    "--privileged",
    "a b",
    "a\nb",
    "$(id)",
    "file:///etc/passwd",
    "http://x/y",
    "instance://z",
    "a;b",
]


@pytest.mark.parametrize("image", HOSTILE)
def test_an_image_that_is_none_is_refused(image: str) -> None:
    with pytest.raises(FieldError, match="container"):
        JobRequest(["train"], container=image).check()


@pytest.mark.parametrize(
    "image", ["python", "nvcr.io/nvidia/pytorch:25.01-py3", "a.example:5000/b/c@sha256:12ef", "docker://a/b", "./a.sif"]
)
def test_usual_names_of_images_are_accepted(image: str) -> None:
    JobRequest(["train"], container=image).check()


@pytest.mark.parametrize("module", ["-f", "--help", "a b", "$(id)", "`id`", "a;id", "a*", "", "a\n"])
def test_a_module_that_is_none_is_refused(module: str) -> None:
    with pytest.raises(FieldError, match="modules"):
        JobRequest(["train"], modules=[module]).check()


def test_a_virtual_environment_is_no_option_and_goes_without_a_container() -> None:
    with pytest.raises(FieldError, match="is not a directory; write"):
        JobRequest(["train"], venv="-x").check()
    with pytest.raises(FieldError, match="not both"):
        JobRequest(["train"], venv="/venv", container="image:1").check()


def test_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(InputError, match=r"'runc' is none of podman, docker, apptainer, singularity"):
        parse_runtimes("podman,runc")


# ---- virtual environments ----


def test_a_job_runs_in_its_virtual_environment(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    told = 'echo "$VIRTUAL_ENV ${PYTHONHOME-none}"; python -c "import sys; print(sys.prefix)"'

    async def scene() -> None:
        environment = {"PATH": os.environ["PATH"], "PYTHONHOME": "/elsewhere"}
        async with attached(tmp_path, environment=environment) as (_, session):
            session.send(start("1", shell(told), request={"venv": str(venv)}))
            session.send(start("2", shell(told), request={"venv": "venv", "working_directory": str(tmp_path)}))
            for job in "12":
                assert (await session.ended(job)).log_tail.decode() == f"{venv} none\n{venv}\n"

    play(scene())


def test_a_virtual_environment_that_is_none_is_a_failure_that_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            for job, venv in (("1", "/no/such"), ("2", str(tmp_path / "empty"))):
                session.send(start(job, shell("true"), request={"venv": venv}))
            ends = [await session.ended(job) for job in "12"]
            assert [end.hopeless for end in ends] == [True, True]
            assert ends[0].reason == "there is no virtual environment /no/such on this server"
            assert "is no virtual environment: it has no bin/python" in ends[1].reason

    play(scene())


# ---- environment modules ----

FAKE_MODULE = """
module() {
    [ "$1" = load ] || return 1
    case "$2" in
    */none) echo "ERROR: Unable to locate a modulefile for '$2'" >&2; return 1;;
    */old) echo "ERROR: as old versions say it, with success" >&2;;
    *) export LOADED="$LOADED $2" PATH="/from/module:$PATH";;
    esac
}
"""


@asynccontextmanager
async def with_modules(folder: Path) -> AsyncIterator[Session]:
    (folder / "init").mkdir()
    for name in ("bash", "sh"):
        (folder / "init" / name).write_text(FAKE_MODULE)
    environment = {"PATH": os.environ["PATH"], "MODULESHOME": str(folder)}
    async with attached(folder, environment=environment) as (_, session):
        yield session


def test_a_job_runs_with_its_modules_and_nothing_else_of_the_shell(tmp_path: Path) -> None:
    told = 'echo "$0 $LOADED $count"; env | grep -c _gavel; exit 3'

    async def scene() -> None:
        async with with_modules(tmp_path) as session:
            request = {"modules": ["cuda/12.4", "gcc"], "environment": {"count": "7"}}
            session.send(start("1", shell(told), request=request))
            end = await session.ended("1")
            assert (end.log_tail.decode(), end.exit_code) == ("/bin/sh  cuda/12.4 gcc 7\n0\n", 3)

    play(scene())


def test_python_is_that_of_the_virtual_environment_although_a_module_has_one(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)

    async def scene() -> None:
        async with with_modules(tmp_path) as session:
            session.send(start("1", shell("command -v python"), request={"venv": str(venv), "modules": ["cuda"]}))
            assert (await session.ended("1")).log_tail.decode() == f"{venv}/bin/python\n"

    play(scene())


def test_a_module_or_command_that_does_not_exist_is_a_failure_that_is_not_tried_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with with_modules(tmp_path) as session:
            session.send(start("1", shell("true"), request={"modules": ["cuda/none"]}))
            session.send(start("2", shell("true"), request={"modules": ["cuda/old"]}))
            session.send(start("3", ["no-such-command"], request={"modules": ["cuda"]}))
            ends = [await session.ended(job) for job in "123"]
            assert [end.hopeless for end in ends] == [True, True, True]
            assert ends[0].reason == (
                "environment module cuda/none cannot be loaded: ERROR: Unable to locate a modulefile for 'cuda/none'"
            )
            assert "cuda/old cannot be loaded" in ends[1].reason
            assert ends[2].reason == "command not found: no-such-command"

    play(scene())


@needs_modules
def test_real_environment_modules_are_found_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("#%Module1.0\nsetenv FROM_MODULE yes\n")

    async def scene() -> None:
        environment = {"PATH": os.environ["PATH"], "MODULEPATH": str(tmp_path)}
        async with attached(tmp_path, environment=environment) as (_, session):
            session.send(start("1", shell("echo $FROM_MODULE"), request={"modules": ["mine"]}))
            session.send(start("2", shell("true"), request={"modules": ["not-there"]}))
            assert (await session.ended("1")).log_tail == b"yes\n"
            end = await session.ended("2")
            assert end.hopeless
            assert "environment module not-there cannot be loaded" in end.reason

    play(scene())


# ---- a real runtime ----

IMAGE = "localhost/gavel-test:1"


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"there is no {name}")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment in which podman works, with an image made of this machine's own files: nothing is fetched."""
    folder = tmp_path_factory.mktemp("podman")
    soft = [f"{name}={number}:{number}" for name, number in (("nofile", 1024), ("nproc", 100))]  # any machine allows it
    engine = '[engine]\nruntime = "runc"\n' if shutil.which("runc") else ""
    (folder / "containers.conf").write_text(f"[containers]\ndefault_ulimits = {json.dumps(soft)}\n{engine}")
    environment = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
    for program in ("/bin/sh", "/bin/sleep"):
        listed = subprocess.run([tool("ldd"), program], capture_output=True, text=True, check=False).stdout
        for file in (program, *(word for word in listed.split() if word.startswith("/"))):
            target = folder / "root" / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(file).resolve(), target)
    packed = subprocess.run(
        [tool("tar"), "-C", str(folder / "root"), "-c", "."], capture_output=True, check=True
    ).stdout
    for words in (["import", "-", IMAGE], ["run", "--rm", "--network=host", IMAGE, "/bin/sh", "-c", "true"]):
        done = subprocess.run([tool("podman"), *words], input=packed, env=environment, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"podman does not work here: {done.stderr.decode().strip()[-200:]}")
    yield environment
    subprocess.run([tool("podman"), "rmi", "--force", IMAGE], env=environment, capture_output=True, check=False)


@needs_podman
def test_a_real_container_runs_a_job_and_ends_with_it(tmp_path: Path, podman: dict[str, str]) -> None:
    told = (
        'echo "$GAVEL_JOB_ID $KEY"; echo saved > "$GAVEL_CHECKPOINT_DIR/mine"; test -S "$GAVEL_SOCKET" && echo linked'
    )
    deaf = "trap '' TERM; echo running; while :; do sleep 1; done"

    def names() -> str:
        listed = [tool("podman"), "ps", "--all", "--format={{.Names}}"]
        return subprocess.run(listed, env=podman, capture_output=True, text=True, check=True).stdout

    async def scene() -> None:
        graces = {"checkpoint_grace": 0.2, "terminate_grace": 0.2}
        runtimes = {"container_runtimes": ("podman",), "environment": podman}
        async with attached(tmp_path, **graces, **runtimes) as (_, session):  # type: ignore[arg-type] # of mixed types
            session.send(start("1", shell(told), request={"container": IMAGE}, secrets={"KEY": VALUE}))
            session.send(start("2", shell(deaf), request={"container": IMAGE}))
            assert (await session.ended("1")).log_tail.decode() == f"1 {VALUE}\nlinked\n"
            assert (tmp_path / "checkpoints" / "1" / "mine").read_text() == "saved\n"
            await session.logged("2", "running")
            assert "-2-1-0" in names()
            session.send(stop("2"))
            await session.ended("2")
            assert "-2-1-0" not in names()

    play(scene())
