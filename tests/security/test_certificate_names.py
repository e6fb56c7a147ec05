"""The names in the scheduler's certificate."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import InputError
from gavel.security.certificates import make_authority, make_server, names_in
from gavel.security.names import default_names, fixed_name, normalised

AUTHORITY = make_authority("c", 1_800_000_000.0)
LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
HOSTS = st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(lambda name: any(map(str.isalpha, name)))
ADDRESSES = st.ip_addresses().filter(lambda address: not address.is_unspecified).map(str)


@given(st.lists(st.one_of(HOSTS, ADDRESSES), max_size=8))
def test_every_valid_name_is_in_the_certificate_once(names: list[str]) -> None:
    found = normalised(names)
    assert normalised(found) == found
    certificate = make_server(AUTHORITY, ("fixed", *found), 1_800_000_000.0).certificate
    assert sorted(names_in(certificate)) == sorted({"fixed", *found})


@given(HOSTS)
def test_case_and_a_final_dot_do_not_matter(name: str) -> None:
    assert normalised([name.upper(), f"{name}.", name]) == (name,)


@given(st.text(max_size=40))
def test_any_text_is_either_a_name_or_refused_with_a_sentence(text: str) -> None:
    try:
        names = normalised([text])
    except InputError:
        names = ()
    certificate = make_server(AUTHORITY, ("fixed", *names), 1_800_000_000.0).certificate
    assert set(names_in(certificate)) == {"fixed", *names}


@pytest.mark.parametrize(
    "name", ["", "a b", "*.lab", "-a", "a..b", "x" * 64, "1.2.3", "a\nb", ".".join(["abcdefg"] * 40)]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="--name"):
        normalised([name])


def test_this_machine_is_known_by_its_usual_names() -> None:
    found = default_names("0.0.0.0", ["gpu-head"])  # noqa: S104
    assert {"localhost", "127.0.0.1", "::1", "gpu-head"} <= set(found)
    assert not {"0.0.0.0", "::"} & set(found)  # noqa: S104
    assert normalised([socket.gethostname()])[0] in found


def test_the_address_that_leads_outside_is_included() -> None:
    found = default_names("127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no route to other networks")
        assert str(ip_address(probe.getsockname()[0])) in found


def test_a_cluster_id_that_is_no_label_is_refused() -> None:
    assert fixed_name("0f3c") == "scheduler.0f3c.gavel.internal"
    with pytest.raises(InputError, match="cluster id"):
        fixed_name("a.b")
