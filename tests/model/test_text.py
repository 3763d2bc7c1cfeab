from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.text import clean


@given(st.text())
def test_clean_leaves_nothing_that_steers_a_terminal_or_breaks_xml(text):
    cleaned = clean(text)
    assert all(c.isprintable() or c == "\n" for c in cleaned)
    assert "\x1b" not in cleaned and "\x00" not in cleaned
