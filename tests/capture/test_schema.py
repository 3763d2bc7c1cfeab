"""Foreign dumps."""

from __future__ import annotations

import pytest

from pgherd.capture.columns import Shapes
from pgherd.capture.schema import checked, init_script
from pgherd.model.errors import UsageError

DUMP = "SET x = 1;\nCREATE TABLE public.\"a\n\\! b\" (c integer DEFAULT '\\copy');\n"


def test_the_restriction_of_pg_dump_is_removed():
    assert checked(f"\\restrict aB3\n\n{DUMP}\n\\unrestrict aB3\n\n") == f"\n{DUMP}\n\n"


@pytest.mark.parametrize("line", ["\\! touch /tmp/x", "\\copy t from program 'x'", "\\connect other", "\\restrict a b"])
def test_a_command_of_psql_in_a_dump_is_refused(line):
    with pytest.raises(UsageError, match=r"the schema contains psql's command .* in line 4"):
        checked(f"{DUMP}{line}\n")


def test_the_file_loads_rows_between_tables_and_keys():
    text, lost = init_script(("CREATE;", "ALTER;"), Shapes([]))
    assert text.index("CREATE;") < text.index("ALTER;") < text.index("VACUUM ANALYZE;") and lost == []
