import pytest

from pgherd.metrics.kernel_text import MANY_CONTAINERS, cadence, flat_keyed, nested_keyed, number


def test_flat_keyed_takes_what_is_wanted() -> None:
    assert flat_keyed("MemFree:   12 kB\nother x\nanon 3\n", {"MemFree": "free", "anon": "anon"}, 2) == {"free": 24, "anon": 6}


@pytest.mark.parametrize("raw", ["", "other 3", "anon", "anon ", "anon x", "anon -3", "anon 1e3"])
def test_flat_keyed_refuses(raw: str) -> None:
    with pytest.raises(ValueError):
        flat_keyed(raw, {"anon": "anon"})


def test_nested_keyed() -> None:
    assert nested_keyed("some avg10=0.50 total=7\n\nfull x\n") == {"some": {"avg10": "0.50", "total": "7"}, "full": {}}


def test_numbers_are_plain_counts() -> None:
    assert number("18446744073709551615") == 2.0**64
    for wrong in ("", "²", "-1", "1" * 21, "0x1"):
        with pytest.raises(ValueError):
            number(wrong)


def test_what_exists_once_per_container_is_read_less_often_when_there_are_many() -> None:
    assert (cadence(1), cadence(MANY_CONTAINERS), cadence(MANY_CONTAINERS + 1)) == (1, 1, 5)
