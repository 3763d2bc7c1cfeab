from pgherd.prepare.servers import describe_checksums, with_checksums


def test_they_are_on_unless_asked_otherwise():
    assert with_checksums(None) and with_checksums(True) and not with_checksums(False)


def test_what_the_version_does_by_itself_needs_no_word():
    assert describe_checksums(None, 18) == [] and describe_checksums(False, 15) == []
    assert describe_checksums(None, 15) == [
        "Data checksums on: the same for all versions, as PostgreSQL 18 and later by default. The default of PostgreSQL 15 is off."
    ]
    assert describe_checksums(False, 18) == ["Data checksums off: as requested. The default of PostgreSQL 18 is on."]
