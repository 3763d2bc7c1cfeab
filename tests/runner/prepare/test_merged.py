from pgherd.postgres.settings import Row
from pgherd.runner.prepare import merged


def test_what_goes_for_all_is_said_once_and_the_rest_with_names():
    said = {"a": ("Common.", "Of two.", "Common."), "b": ("Common.", "Of two."), "c": ("Own.", "Common.")}
    assert merged.choices(said) == ("Common.", "a, b: Of two.", "c: Own.")


def test_settings_that_differ_come_first_with_every_value():
    def row(name, value):
        return Row(name, value, "0", "why")

    found = merged.settings({"a": [row("x", "1"), row("y", "1")], "b": [row("x", "1"), row("y", "2")], "c": [row("x", "1")]})
    assert [(one.name, one.value) for one in found] == [("y", "a: 1; b: 2; c: the default"), ("x", "1")]


def test_changes_once():
    assert merged.changes([("a", "b"), ("b", "c")]) == ("a", "b", "c")
