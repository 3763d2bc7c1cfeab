"""Variants: what NAME:key=value,… means, and what is said of what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.prepare.variants import apply, expand, parse_variant
from pgherd.studies.density.options import DensityRequest

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "name", "changes"),
    [
        ("a", "a", {}),
        ("a:", "a", {}),
        (" big : shared_buffers = 1GB , pg-bin=/usr/lib/16/bin ", "big", {"shared_buffers": "1GB", "pg-bin": "/usr/lib/16/bin"}),
        ('a:search_path="x,y",jit=off', "a", {"search_path": "x,y", "jit": "off"}),
        ('a:x="say ""it"", then",y=""', "a", {"x": 'say "it", then', "y": ""}),
        ("a:settings-from=host=h port=1", "a", {"settings-from": "host=h port=1"}),
        ("16.2:pg_bin=/a:b", "16.2", {"pg_bin": "/a:b"}),
    ],
)
def test_reads_names_keys_and_values(text: str, name: str, changes: dict[str, str]) -> None:
    assert parse_variant(text) == (name, changes)


@given(NAMES, st.dictionaries(NAMES, st.text(st.characters(blacklist_categories=("Cs",))), max_size=4))
def test_any_value_survives_in_double_quotes(name: str, changes: dict[str, str]) -> None:
    text = ",".join(f'{key}="{value.replace(chr(34), chr(34) * 2)}"' for key, value in changes.items())
    assert parse_variant(f"{name}:{text}") == (name, changes)


@given(st.text(max_size=40))
def test_never_fails_but_with_its_own_message(text: str) -> None:
    try:
        parse_variant(text)
    except UsageError as error:
        assert "variant" in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name is missing"),
        (":a=1", "the name is missing"),
        ("a b:c=1", "'a b' is not a valid name"),
        ("a:jit", "variant 'a': 'jit' is not key=value"),
        ("a:jit=off,,x=1", "'' is not key=value"),
        ("a:jit=", "'jit' has no value"),
        ("a:pg-bin=x,pg_bin=y", "'pg_bin' occurs twice"),
        ('a:x=1"2"', "quote the whole value"),
        ('a:x="1', "quote the whole value"),
    ],
)
def test_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_variant(text)
    assert message in str(error.value)


def test_options_replace_and_the_rest_are_settings() -> None:
    request = DensityRequest(scale=5, set=("jit=on",))
    changed = apply(request, {"scale": "20", "pg-version": "15", "vcpus": "0.5", "databases": "1,2", "jit": "off", "my.thing": "x"})
    assert (changed.scale, changed.pg_version, changed.vcpus, changed.databases) == (20, "15", 0.5, (1, 2))
    assert changed.set == ("jit=on", "jit=off", "my.thing=x"), "a later setting of the same name wins"
    assert request.set == ("jit=on",)
    assert apply(request, {}) == request


def test_what_a_variant_says_takes_back_what_says_it_in_another_way() -> None:
    assert apply(DensityRequest(pg_bin="/a"), {"pg-version": "17"}).pg_bin is None
    assert apply(DensityRequest(pg_version="17"), {"pg-bin": "/a", "pg-version": "16"}).pg_version == "16"
    assert apply(DensityRequest(script=("a.sql",), init_script="b.sql"), {"workload": "tpcb-like"}).script == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": "2"}, "'seed' cannot differ between variants"),
        ({"set": "a=b"}, "write each setting as a key"),
        ({"pg-bim": "/x"}, "(did you mean pg-bin?); a key is one of"),
        ({"vcpu": "2"}, "did you mean vcpus?"),
        ({"a+b": "2"}, "neither an option nor a setting; a key is one of"),
        ({"vcpus": "two"}, "variant 'v': 'vcpus': input should be a valid number"),
        ({"runtime": "external"}, "'runtime': input should be 'process', 'cgroup' or 'vm', but it is 'external'"),
    ],
)
def test_names_the_variant_the_key_and_what_is_known(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        apply(DensityRequest(), changes, "v")
    assert message in str(error.value)
    assert str(error.value).startswith("variant 'v': ")


def test_expands_all_and_refuses_what_cannot_be_compared() -> None:
    result = expand(DensityRequest(scale=3), ["base", "big:shared_buffers=1GB"])
    assert {name: item.set for name, item in result.items()} == {"base": (), "big": ("shared_buffers=1GB",)}
    for texts, message in (
        (["a", "a:jit=off"], "'a' occurs twice"),
        (["a", "b"], "'a' and 'b' are the same"),
        (["a:scale=3", "b"], "are the same"),
        (["a:jit=off,geqo=on", "b:geqo=on,jit=off"], "are the same"),
    ):
        with pytest.raises(UsageError) as error:
            expand(DensityRequest(scale=3), texts)
        assert message in str(error.value)
