from pgherd.workloads.realistic import REALISTIC, SampleRows, digest


def test_the_same_seed_gives_the_same_rows_and_every_column_a_value():
    first, again = SampleRows(), SampleRows()
    for make in ("people", "addresses", "listings"):
        rows = list(getattr(first, make)(300))
        assert rows == list(getattr(again, make)(300)) and len(rows) == 300
        assert all(value is not None and value != "" for row in rows for value in row)


def test_values_vary_as_those_of_people_do():
    people = list(SampleRows().people(2000))
    assert len({row[2] for row in people}) > 500, "surnames"
    assert len({row[3] for row in people}) > 1990, "addresses of mail"


def test_a_listing_is_a_key_and_its_prices_are_in_order():
    rows = list(SampleRows().listings(600))
    assert len({(row[0], row[2]) for row in rows}) == 600
    assert all(low <= min(opened, closed) and max(opened, closed) <= high for _, _, _, opened, high, low, closed, _ in rows)


def test_identity_names_scale_and_contents():
    from pgherd.model.deployment import Database
    from pgherd.node.local import LocalNode

    filling = REALISTIC.filling(LocalNode(), Database(workload="realistic", scale=7))
    assert filling.identity == f"realistic-7-{digest()}" and filling.size_estimate > 7 * 400_000
