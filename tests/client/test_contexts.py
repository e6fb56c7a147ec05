"""The file of contexts: readable for its owner only, never half written, and clear about what is wrong with it."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.client.contexts import ContextFile, Contexts, SchedulerContext, Trust, check_name, configuration_directory
from gavel.errors import InputError

SECRET = "gvl_" + "s" * 43
HEAD = SchedulerContext(
    name="head", address="head:7077", trust=Trust.AUTHORITY, authority="PEM", fingerprint="sha256:1", token=SECRET
)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def file(tmp_path: Path, said: list[str]) -> ContextFile:
    return ContextFile(tmp_path / "config" / "gavel", said.append)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_stored_comes_back_and_only_its_owner_may_read_it(file: ContextFile, said: list[str]) -> None:
    file.change(lambda contexts: contexts.adding(HEAD))
    assert file.read() == Contexts({"head": HEAD}, "head")
    assert mode(file.path) == 0o600
    assert mode(file.path.parent) == 0o700
    assert [path.name for path in file.path.parent.iterdir()] == ["contexts.json"]
    assert said == []


def test_without_a_file_there_are_no_contexts(file: ContextFile) -> None:
    assert file.read() == Contexts()
    assert ContextFile(None).read() == Contexts()


def test_a_file_that_others_may_read_is_reported_and_closed_to_them(file: ContextFile, said: list[str]) -> None:
    file.change(lambda contexts: contexts.adding(HEAD))
    file.path.chmod(0o644)
    assert file.read().chosen == HEAD
    assert mode(file.path) == 0o600
    assert len(said) == 1
    assert "(mode 644)" in said[0]
    assert SECRET not in said[0]
    file.read()
    assert len(said) == 1


def test_a_directory_that_others_may_read_is_closed_to_them(file: ContextFile) -> None:
    file.path.parent.mkdir(parents=True, mode=0o755)
    file.path.parent.chmod(0o755)
    file.change(lambda contexts: contexts.adding(HEAD))
    assert mode(file.path.parent) == 0o700


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"contexts": 7}', b'{"contexts": [7]}', b'{"contexts": [{}]}'),
        json.dumps({"contexts": [{"name": "a", "address": "b", "token": 7}]}).encode(),
        json.dumps({"contexts": [{"name": "a", "address": "b", "trust": SECRET}]}).encode(),
        json.dumps({"contexts": [{"name": "a", "address": "b", "trust": "authority"}]}).encode(),
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_gives_one_sentence_without_its_content(file: ContextFile, content: bytes) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.touch(0o600)
    file.path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged; remove it and log in again") as caught:
        file.read()
    assert SECRET not in str(caught.value)
    with pytest.raises(InputError):
        file.change(lambda contexts: contexts.adding(HEAD))
    assert file.path.read_bytes() == content


def test_fields_of_a_newer_version_do_no_harm(file: ContextFile) -> None:
    file.change(lambda contexts: contexts.adding(HEAD))
    document = json.loads(file.path.read_text())
    document["contexts"][0]["colour"] = "blue"
    file.path.write_text(json.dumps(document))
    assert file.read().chosen == HEAD


def test_a_change_that_fails_leaves_the_file_as_it_was(file: ContextFile) -> None:
    file.change(lambda contexts: contexts.adding(HEAD))
    before = file.path.read_bytes()
    with pytest.raises(InputError, match="there is no context 'tail'; there are: head"):
        file.change(lambda contexts: contexts.using("tail"))
    assert file.path.read_bytes() == before


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write .*contexts\.json"):
        ContextFile(tmp_path / "file" / "gavel").change(lambda contexts: contexts.adding(HEAD))


def test_concurrent_logins_all_stay(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from gavel.client.contexts import *\n"
        "file = ContextFile(Path(sys.argv[1]))\n"
        "for number in range(10):\n"
        "    name = f'{sys.argv[2]}{number}'\n"
        "    file.change(lambda contexts: contexts.adding(SchedulerContext(name=name, address='h:1')))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "gavel")]
    running = [subprocess.Popen([*command, prefix]) for prefix in "abc"]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert len(ContextFile(tmp_path / "gavel").read().known) == 30


def test_the_token_is_in_no_representation() -> None:
    contexts = Contexts({"head": HEAD}, "head")
    for shown in (repr(HEAD), str(HEAD), repr(contexts), json.dumps(HEAD.document())):
        assert SECRET not in shown
    assert HEAD.document()["has_token"] is True


def test_the_current_context_goes_with_its_removal() -> None:
    two = Contexts().adding(HEAD).adding(SchedulerContext(name="tail", address="tail:7077"))
    assert two.current == "tail"
    assert two.without("tail") == Contexts({"head": HEAD})
    assert two.without("head").current == "tail"
    assert two.using("head").chosen == HEAD


@pytest.mark.parametrize("name", ["", "a b", "a\n", "\x1b[31m", "-f", "a/b", "x" * 201])
def test_a_name_that_cannot_be_typed_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a context"):
        check_name(name)


def test_the_directory_is_the_users_configuration() -> None:
    assert configuration_directory({"XDG_CONFIG_HOME": "/x"}) == Path("/x/gavel")
    assert configuration_directory({}) == Path.home() / ".config" / "gavel"
