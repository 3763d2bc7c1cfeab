import pytest

from pgherd.postgres.provider import ProviderFacts, provider_of, quoted

PLAIN = {"plpgsql", "auto_explain", "pg_stat_statements"}


@pytest.mark.parametrize(
    ("facts", "host", "name"),
    [
        (ProviderFacts(prefixes=frozenset(PLAIN | {"rds"}), roles=frozenset({"postgres", "rds_superuser"})), "10.0.0.1", "Amazon RDS"),
        (ProviderFacts(prefixes=frozenset({"rds"}), aurora=True), "c.cluster-x.eu-west-1.rds.amazonaws.com", "Amazon Aurora"),
        (ProviderFacts(prefixes=frozenset({"cloudsql"})), "", "Google Cloud SQL"),
        (ProviderFacts(prefixes=frozenset({"alloydb", "cloudsql"})), "", "Google AlloyDB"),
        (ProviderFacts(roles=frozenset({"azure_pg_admin"})), "db.example.org", "Azure Database for PostgreSQL"),
        (ProviderFacts(), "ep-cool-1.eu-central-1.aws.neon.tech", "Neon"),
        (ProviderFacts(roles=frozenset({"supabase_admin"})), "127.0.0.1", "Supabase"),
        (ProviderFacts(), "p.abc.db.postgresbridge.com.", "Crunchy Bridge"),
    ],
)
def test_providers_are_recognised_and_tell_what_is_unknown(facts, host, name):
    provider = provider_of(facts, host)
    assert provider is not None and provider.name == name and "its host" in provider.unknown


def test_plain_postgresql_has_none():
    assert (
        provider_of(ProviderFacts(prefixes=frozenset(PLAIN), roles=frozenset({"postgres", "pg_monitor"})), "neon.tech.example.org") is None
    )


def test_a_role_is_quoted():
    assert quoted('o"x') == '"o""x"'
