from hypothesis import given
from hypothesis import strategies as st

from pgherd.studies.compression.readings import relations


@given(st.text(min_size=1, max_size=20))
def test_a_relation_may_have_any_name(name):
    probe = {f"raw_bytes/3/{name}": 100.0, f"compressed_bytes/lz4/8192/3/{name}": 40.0, f"stored_bytes/lz4/8192/3/{name}": 60.0}
    found = relations(probe | {f"size_bytes/{name}": 1000.0, f"segments/{name}": 10.0, "unknown": 1.0})
    assert list(found) == [name]
    one = found[name]
    assert (one.size, one.segments, one.raw) == (1000.0, 10, {3: 100.0})
    assert one.compressed == {("lz4", 8192): {3: 40.0}} and one.stored == {("lz4", 8192): {3: 60.0}}
