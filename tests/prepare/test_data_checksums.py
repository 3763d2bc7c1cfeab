from pgherd.prepare.data_checksums import chosen, words
from pgherd.study.database_options import DatabaseRequest


def test_they_are_on_unless_asked_otherwise():
    assert chosen(DatabaseRequest()) and chosen(DatabaseRequest(data_checksums=True)) and not chosen(DatabaseRequest(data_checksums=False))


def test_what_the_version_does_by_itself_needs_no_word():
    assert words(DatabaseRequest(), 18) == [] and words(DatabaseRequest(data_checksums=False), 15) == []
    assert words(DatabaseRequest(), 15) == [
        "Data checksums on: the same for all versions, as PostgreSQL 18 and later by default. The default of PostgreSQL 15 is off."
    ]
    assert words(DatabaseRequest(data_checksums=False), 18) == ["Data checksums off: as requested. The default of PostgreSQL 18 is on."]
