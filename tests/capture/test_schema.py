"""Foreign dumps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pgherd.capture.columns import Shapes
from pgherd.capture.schema import Schema, checked, dump_schema, init_script, schema_for_copy
from pgherd.model.errors import UsageError
from pgherd.postgres.external_server import LibpqAddress
from pgherd.postgres.installations import Installation

DUMP = "SET x = 1;\nCREATE TABLE public.\"a\n\\! b\" (c integer DEFAULT '\\copy');\n"


def test_the_restriction_of_pg_dump_is_removed():
    assert checked(f"\\restrict aB3\n\n{DUMP}\n\\unrestrict aB3\n\n") == f"\n{DUMP}\n\n"


@pytest.mark.parametrize("line", ["\\! touch /tmp/x", "\\copy t from program 'x'", "\\connect other", "\\restrict a b"])
def test_a_command_of_psql_in_a_dump_is_refused(line):
    with pytest.raises(UsageError, match=r"the schema contains psql's command .* in line 4"):
        checked(f"{DUMP}{line}\n")


def test_the_file_loads_rows_between_tables_and_keys():
    text, lost = init_script(Schema("CREATE;", "ALTER;"), Shapes([]))
    assert text.index("CREATE;") < text.index("ALTER;") < text.index("VACUUM ANALYZE;") and lost == []


LINKED = r"""\restrict x1

SET standard_conforming_strings = on;

CREATE FOREIGN DATA WRAPPER other OPTIONS (
    token 'secret'
);


--
-- Name: the; secret; Type: SERVER; Schema: -; Owner: -
--

CREATE SERVER "the; other" FOREIGN DATA WRAPPER postgres_fdw OPTIONS (
    host 'secret;',
    service E'secret\';'
);


CREATE USER MAPPING FOR postgres SERVER "the; other" OPTIONS (
    password 'secret',
    "user" 'secret'
);


CREATE FUNCTION public.f() RETURNS text
    LANGUAGE sql
    AS $_$ CREATE SERVER kept; '$_$;


--
-- Name: stock; Type: FOREIGN TABLE; Schema: public; Owner: -
--

CREATE FOREIGN TABLE public.stock (
    id integer NOT NULL,
    name text DEFAULT '
SERVER a;'::text
)
INHERITS (public.goods)
SERVER "the; other"
OPTIONS (
    table_name 'secret'
);
ALTER FOREIGN TABLE ONLY public.stock ALTER COLUMN id SET STATISTICS 7;
ALTER FOREIGN TABLE public.stock ALTER COLUMN id OPTIONS (
    column_name 'secret'
);


CREATE VIEW public.v AS
 SELECT stock.id
   FROM public.stock;


\unrestrict x1
"""


def test_no_link_and_no_password_leaves_the_server():
    schema = schema_for_copy(LINKED, "")
    assert "secret" not in schema.before and "MAPPING" not in schema.before and "FOREIGN DATA" not in schema.before
    assert "$_$ CREATE SERVER kept; '$_$;" in schema.before and "CREATE VIEW public.v AS" in schema.before
    assert "CREATE TABLE public.stock (\n" in schema.before and "SERVER a;'::text\n)\nINHERITS (public.goods);" in schema.before
    assert "ALTER TABLE ONLY public.stock ALTER COLUMN id SET STATISTICS 7;" in schema.before
    assert schema.lost == (
        'foreign servers "the; other": left out with their addresses, users and passwords',
        "foreign tables public.stock: empty tables in the copy",
    )


def test_a_command_of_psql_that_only_the_copy_has_is_refused():
    dump = "/* ' */ SELECT ' ; CREATE SERVER a $$'$$; ' \n\\! touch x\n"
    assert checked(dump) == dump, "here it is quoted"
    with pytest.raises(UsageError, match="the schema contains psql's command"):
        schema_for_copy(dump, "")


DOMAINS = """CREATE DOMAIN public.email AS text NOT NULL DEFAULT 'a@b'
\tCONSTRAINT email_check CHECK ((VALUE ~~ '%@%'::text))
\tCONSTRAINT "is; short" CHECK ((length(VALUE) < 9));
CREATE DOMAIN public."Plain" AS integer;
CREATE TABLE public.account (
    CONSTRAINT kept CHECK (true)
);
"""
RULES = """ALTER DOMAIN public.late
    ADD CONSTRAINT "not valid" CHECK ((VALUE > 0)) NOT VALID;
ALTER TABLE public.account
    ADD CONSTRAINT late CHECK ((id > 0)) NOT VALID;
ALTER TABLE ONLY public.account
    ADD CONSTRAINT account_fkey FOREIGN KEY (id) REFERENCES public.other(id) NOT VALID;
ALTER TABLE public."Account" ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON public."Account" FOR SELECT TO reader USING ((name = ' ENABLE ROW LEVEL SECURITY;'::text));
CREATE TRIGGER kept AFTER INSERT ON public.account FOR EACH ROW EXECUTE FUNCTION public.f(' ENABLE ROW LEVEL SECURITY');
"""


def test_checks_of_domains_and_row_level_security_are_left_out():
    schema = schema_for_copy(DOMAINS, RULES)
    assert "CREATE DOMAIN public.email AS text NOT NULL DEFAULT 'a@b';\n" in schema.before and "VALUE" not in schema.before
    assert 'CREATE DOMAIN public."Plain" AS integer;' in schema.before and "CONSTRAINT kept" in schema.before
    assert "CHECK" not in schema.after and "POLICY" not in schema.after and "reader" not in schema.after
    assert "account_fkey FOREIGN KEY" in schema.after and "CREATE TRIGGER kept" in schema.after
    assert schema.lost == (
        "domains public.email, public.late: check constraints are dropped in the copy",
        'tables public."Account": row-level security is left out',
    )


INDEXES = r"""CREATE UNIQUE INDEX plain ON public.t USING btree (a, b);
CREATE UNIQUE INDEX part ON public.t USING btree (a) WHERE (b = 'x'::text);
CREATE UNIQUE INDEX "an\ex'pr" ON public.t USING btree (lower(a));
"""


def test_unique_indexes_on_expressions_or_a_part_of_the_rows_may_fail():
    schema = schema_for_copy("", INDEXES)
    plain, part, expression = schema.after.splitlines()
    assert plain == INDEXES.splitlines()[0] and part.startswith("DO 'BEGIN EXECUTE ''CREATE UNIQUE INDEX part ON")
    assert part.count("INDEX part ON") == 2 and part.count("UNIQUE") == 1 and "EXCEPTION WHEN OTHERS" in part
    assert expression.startswith("DO E'BEGIN EXECUTE ")
    assert schema.lost == ('unique indexes part, "an\\ex\'pr": not unique in the copy if generated values repeat',)


VIEWS = """CREATE MATERIALIZED VIEW public.first AS
 SELECT 1 AS n
  WITH NO DATA;
CREATE MATERIALIZED VIEW "a;b"."it's" AS
 SELECT n FROM public.first
  WITH NO DATA;
"""


def test_materialized_views_are_filled_in_order():
    schema = schema_for_copy(VIEWS, "CREATE MATERIALIZED VIEW public.late AS\n SELECT 1\n  WITH NO DATA;\nALTER;")
    text, lost = init_script(schema, Shapes([]))
    names = ["public.first", "\"a;b\".\"it''''s\"", "public.late"]
    places = [text.index(f"REFRESH MATERIALIZED VIEW {name};") for name in names]
    assert text.index("ALTER;") < places[0] and places == sorted(places) and places[-1] < text.index("VACUUM ANALYZE;")
    assert text.count("EXCEPTION WHEN OTHERS") == 3
    assert lost == [
        'materialized views public.first, "a;b"."it\'s", public.late: filled by their queries from generated rows, and empty if a '
        "query fails on them"
    ]


def test_the_database_gets_the_search_path():
    text, _ = init_script(Schema("", ""), Shapes([]), '"it\'s", "b%$$"')
    assert "format(''ALTER DATABASE %I SET search_path TO '', current_database()) || ''\"it''''s\", \"b%$$\"''; END';" in text
    assert "ALTER DATABASE" not in init_script(Schema("", ""), Shapes([]))[0]


def test_pg_dump_runs_as_the_account():
    commands = []
    node = SimpleNamespace(run=lambda command, timeout: commands.append(command) or SimpleNamespace(code=0, out="SELECT 1;\n", err=""))
    schema = dump_schema(node, Installation("/b", "15.1", 15, "system"), LibpqAddress("h", 1, "u", "d"), "owner")
    assert schema == Schema("SELECT 1;", "SELECT 1;") and [command.user for command in commands] == ["owner", "owner"]
