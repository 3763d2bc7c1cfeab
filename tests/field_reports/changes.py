"""Documents of others, changed at random."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

Found = TypeVar("Found")

ODD = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, "nan", "inf"])
    | st.floats()
    | st.text(max_size=5)
    | st.just([])
    | st.just({})
    | st.lists(st.integers(), max_size=2)
)


def changed(document: Any, data: st.DataObject) -> Any:
    """The document with one to three values replaced by odd ones, or removed."""
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        parent, key = None, None
        node = document
        while isinstance(node, dict | list) and node and (parent is None or data.draw(st.integers(0, 5))):
            parent, key = node, data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
            node = node[key]
        if parent is not None:
            if data.draw(st.booleans()):
                parent[key] = data.draw(ODD)
            else:
                del parent[key]
    return document


def read_changed(read: Callable[[Any], Found], document: Any, data: st.DataObject, refusal: type[Exception] = ValueError) -> Found | None:
    """What is read from the document after a change, None if that is refused. Unchanged it has to be read."""
    read(document)
    try:
        return read(changed(document, data))
    except refusal as error:
        assert str(error)
        return None
