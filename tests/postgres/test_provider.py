import pytest

from pgherd.postgres.provider import ServerFacts, provider_of, quoted

PLAIN = {"plpgsql", "auto_explain", "pg_stat_statements"}


@pytest.mark.parametrize(
    ("facts", "host", "name"),
    [
        (ServerFacts(prefixes=frozenset(PLAIN | {"rds"}), roles=frozenset({"postgres", "rds_superuser"})), "10.0.0.1", "Amazon RDS"),
        (ServerFacts(prefixes=frozenset({"rds"}), aurora=True), "c.cluster-x.eu-west-1.rds.amazonaws.com", "Amazon Aurora"),
        (ServerFacts(prefixes=frozenset({"cloudsql"})), "", "Google Cloud SQL"),
        (ServerFacts(prefixes=frozenset({"alloydb", "cloudsql"})), "", "Google AlloyDB"),
        (ServerFacts(roles=frozenset({"azure_pg_admin"})), "db.example.org", "Azure Database for PostgreSQL"),
        (ServerFacts(), "ep-cool-1.eu-central-1.aws.neon.tech", "Neon"),
        (ServerFacts(roles=frozenset({"supabase_admin"})), "127.0.0.1", "Supabase"),
        (ServerFacts(), "p.abc.db.postgresbridge.com.", "Crunchy Bridge"),
    ],
)
def test_providers_are_recognised_and_tell_what_is_unknown(facts, host, name):
    provider = provider_of(facts, host)
    assert provider is not None and provider.name == name and "its host" in provider.unknown


def test_plain_postgresql_has_none():
    assert provider_of(ServerFacts(prefixes=frozenset(PLAIN), roles=frozenset({"postgres", "pg_monitor"})), "neon.tech.example.org") is None


def test_a_role_is_quoted():
    assert quoted('o"x') == '"o""x"'
