"""Tables of databases: forms that are read, faults that are refused, and the mix that they are completed to on this host."""

from __future__ import annotations

import hashlib
import re

import pytest
import yaml

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.prepare import servers
from pgherd.prepare.prepared_study import keep_inputs
from pgherd.studies.density.options import DensityOptions, DensityRequest
from pgherd.studies.density.prepare import plan_lines, prepare
from pgherd.studies.density.prepare_tenant_table import read_databases
from pgherd.studies.density.tenant_table import MB, TableDatabase

pytestmark = pytest.mark.usefixtures("own_directories")

HEADER = "database,size,tps,peak hour\n"
FLEET = HEADER + "".join(f"shop{i},{40 + i}MB,{60 + i},14\n" for i in range(9)) + "".join(f"night{i},150MB,300,2:30\n" for i in range(3))


@pytest.fixture
def table(tmp_path):
    def write(text: str):
        path = tmp_path / "fleet.csv"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def completed(monkeypatch, table):
    monkeypatch.setattr(servers.settings_validation, "validate", lambda *_: None)  # tested elsewhere, and slow

    def run(text: str = FLEET, **requested):
        given = {"host_cores": 1.0, "host_memory": "2GB", "seed": 1, "tenants_from": str(table(text)), **requested}
        try:
            return prepare(LocalNode(), DensityRequest.model_validate(given), dry=True)
        except CapabilityError as error:
            pytest.skip(str(error))

    return run


# ---- forms


@pytest.mark.parametrize(
    "text",
    [
        "database,size,tps,peak hour\na,1.5GB,12.5,13:30\nb,300MB,0,2\n",
        "datname;Size (MB);TPS;Peak_Hour\na;1536;12,5;13,5\nb;300;0;2\n",
        "peak,db,rate,size_gb\n13.5,a,12.5,1.5\n02:00,b,0.0,0.29296875\n",
        "name\tDatabase Size\ttps\thour\na\t1610612736\t12.5\t13:30\nb\t314572800\t0.0\t2\n",
    ],
)
def test_columns_and_units_may_be_written_in_several_ways(table, text):
    assert read_databases(table(text)) == [TableDatabase("a", 1536 * MB, 12.5, 13.5), TableDatabase("b", 300 * MB, 0, 2)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("b,-1MB,5,3", "line 3, database b: '-1MB' under size is not a size above 0, such as 512MB or 1.5GB"),
        ("b,,5,3", "line 3, database b: '' under size is not a size above 0"),
        ("b,12 cats,5,3", "'12 cats' under size is not a size above 0"),
        ("b,500,5,3", "'500' under size has no unit, and an empty database has more bytes; write the unit there, such as 500MB, or in"),
        ("b,1GB,-5,3", "line 3, database b: '-5' under tps is not a number of at least 0; write 0 for an idle database"),
        ("b,1GB,,3", "database b: '' under tps is not a number"),
        ("b,1GB,nan,3", "'nan' under tps is not a number"),
        ("b,1GB,5,25", "line 3, database b: '25' under peak hour is not an hour of the day; write 0 to 23, or a time such as 13:30"),
        ("b,1GB,5,24", "'24' under peak hour is not an hour"),
        ("b,1GB,5,", "'' under peak hour is not an hour"),
        ("b,1GB,5,13:75", "'13:75' under peak hour is not an hour"),
        ("b,1GB,5,23.5:45", "'23.5:45' under peak hour is not an hour"),
        ("b,1e308TB,5,3", "database b: '1e308TB' under size is more than an exabyte; check the number and its unit"),
        ("b,1GB,1e308,3", "'1e308' under tps is more than 1,000,000,000 tps; check the number"),
        (",1GB,5,3", "line 3: the name of the database is empty; write it under database"),
        ("a,1GB,5,3", "line 3: database a is there already in line 2; write one row for each database"),
        ("b,1GB,5,3,7", "line 3 has 5 cells, but the table has 4 columns"),
    ],
)
def test_a_wrong_row_is_named_with_its_value(table, row, message):
    with pytest.raises(UsageError, match=message):
        read_databases(table(f"{HEADER}a,1GB,5,3\n{row}\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("database,size,tps,peak hour,owner\na,1GB,5,3,me\n", "column 'owner' is none of database, size, tps, peak hour; rename or remove"),
        ("database,size,tps\na,1GB,5\n", r"no column for the peak hour \(it has database, size, tps\); name it peak hour"),
        ("database,tps,peak hour\na,5,3\n", "no column for the size .*; name it size, or size_mb with its unit"),
        ("database,size,size_mb,tps,peak hour\na,1GB,5,3,3\n", "'size' and 'size_mb' may both be the size; remove one"),
        ("database,size_mb,tps,peak hour\na,1GB,5,3\n", "'1GB' under size_mb is not a number above 0, as the unit is in the name size_mb"),
        (HEADER, "has a header and no rows"),
        ("a,1GB,5,3\n", "column 'a' is none of database"),
        ("", "is empty; it requires lines of database, size, tps and peak hour"),
    ],
)
def test_a_wrong_table_is_refused(table, text, message):
    with pytest.raises(UsageError, match=message):
        read_databases(table(text))


# ---- the mix


def test_a_table_becomes_a_mix(completed):
    found = completed()
    small, big = found.options.tenants
    assert (small.name, small.weight, small.scale, small.rate) == ("a-37mb-64tps-14h", 9, 2, 64)
    assert (big.name, big.weight, big.scale, big.rate) == ("b-157mb-300tps-2h", 3, 10, 300)
    assert small.vcpus == 0.125 and small.container_memory == 128 * MB and small.scripts[0].source == "builtin:select-only"
    assert small.activity.kind == "daily" and small.activity.profile[14] == 1 and small.activity.profile[2] == 0.1
    assert [one.databases for one in found.options.tenant_table.classes] == [9, 3]
    assert any(text.startswith("12 databases of fleet.csv are 2 classes of tenants, with ") for text in found.defaults_chosen)
    assert any(text.startswith("Class a-37mb-64tps-14h, 9 databases of 40.8 MB to 47.2 MB") for text in found.defaults_chosen)
    again = DensityOptions.model_validate_json(found.options.model_dump_json())
    assert again == found.options, "as a resumed run reads them"


def test_the_stored_document_makes_the_same_mix(completed, tmp_path):
    options = completed().options
    _, digests = keep_inputs(LocalNode(), options, tmp_path / "inputs")
    stored = tmp_path / "inputs/tenants.yaml"
    assert digests == {"tenants.yaml": hashlib.sha256(stored.read_bytes()).hexdigest()[:12]}
    assert "\n".join(plan_lines(options, ())).endswith(stored.read_text().rstrip()), "a dry run prints it"
    again = completed(tenants_from=None, tenants=str(stored)).options
    assert again.tenants == options.tenants and again.databases == options.databases
    assert again.tenant_table is None and not again.documents()


def test_options_of_the_command_line_apply(completed):
    options = completed(vcpus=0.5, memory="256MB", workload="tpcb-like", slo=("p95=50ms",), clients=3).options
    for one in options.tenants:
        assert (one.vcpus, one.container_memory, one.clients) == (0.5, 256 * MB, 3) and one.objectives
        assert one.scripts[0].source == "builtin:tpcb-like"
    first = yaml.safe_load(options.tenant_table.document)["classes"][0]
    assert (first["memory"], first["vcpus"], first["workload"]) == ("256MB", 0.5, "tpcb-like")
    assert completed(workload="random-block").options.tenants[0].scale > 20, "the scale is in MiB"


def test_a_host_that_cannot_limit_memory_makes_classes_without_it(table, monkeypatch):
    """As for an ordinary user without control groups. The memory that the databases need still bounds the mix."""
    monkeypatch.setattr(servers.settings_validation, "validate", lambda *_: None)
    given = {"host_cores": 1.0, "host_memory": "2GB", "seed": 1, "tenants_from": str(table(FLEET)), "runtime": "process"}
    options = prepare(LocalNode(), DensityRequest.model_validate(given), dry=True).options
    assert isinstance(options, DensityOptions) and options.tenant_table is not None
    assert "memory" not in options.tenant_table.document and options.tenants
    assert all(one.container_memory is None for one in options.tenants)


def test_only_classes_with_enough_transactions_have_a_latency_objective(completed):
    found = completed(slo=("p99=50ms",))
    small, big = found.options.tenants  # of 64 and 300 tps
    assert small.objectives == () and [objective.name for objective in big.objectives] == ["p99"]
    note = "Classes with too few transactions for --slo, which have to keep their rate only: a-37mb-64tps-14h."
    assert note in found.defaults_chosen
    with pytest.raises(UsageError, match="--slo p99.9=50ms: the classes of the table have at most 300 tps, too few for that percentile"):
        completed(slo=("p99.9=50ms",))


def test_a_database_is_not_larger_than_a_quarter_of_the_memory(completed):
    found = completed(HEADER + "a,2TB,300,3\nb,100GB,300,3\n")
    (one,) = found.options.tenants
    assert 256 * MB < one.container_memory <= 512 * MB
    (text,) = [text for text in found.defaults_chosen if "the largest that is loaded" in text]
    assert text.endswith(": 2 of 2.") and found.options.tenant_table.classes[0].size_kept < 0.01
    cached = completed(HEADER + "a,2TB,300,3\n", memory="1GB").options.tenants[0]
    assert one.scale < cached.scale < 100 and cached.container_memory == 1024 * MB


def test_databases_far_from_their_class_are_counted(completed):
    near = completed().defaults_chosen
    assert any(text.startswith("Classes are the fewest in which all databases are within a factor of 4 of their class") for text in near)
    spread = "".join(f"t{rate}h{hour},40MB,{rate},{hour}\n" for rate in (3 * 20**i for i in range(6)) for hour in (0, 12))
    far = completed(HEADER + spread).defaults_chosen
    (text,) = [text for text in far if text.startswith("There are at most 8 classes, so that ")]
    assert re.match(r".* so that [4-9] of 12 databases are not within a factor of 4 of their class", text)


def test_databases_without_a_load_are_idle_tenants(completed):
    found = completed(HEADER + "a,20MB,0,3\nb,20MB,0.01,3\nc,20MB,0.7,3\nd,20MB,300,3\n", slo=("p95=50ms",), databases=(8,))
    busy, low, idle = sorted(found.options.tenants, key=lambda one: -(one.rate or 0))
    assert (busy.rate, low.rate, idle.rate, idle.weight) == (300, 2.5, None, 2)
    assert idle.idle and idle.objectives == () and busy.objectives
    assert "Databases of 0.625 to 2.5 tps have 2.5 tps, the lowest rate of a block: 1 of 4." in found.defaults_chosen
    assert "Databases of less than 0.625 tps are idle: 2 of 4." in found.defaults_chosen
    assert any(text.endswith("only: a-22mb-2tps-3h.") for text in found.defaults_chosen), "an idle class keeps nothing"


def test_a_table_of_idle_databases_measures_idle_servers(completed):
    found = completed(HEADER + "a,20MB,0,3\nb,20MB,0,3\n", slo=("p95=50ms",))
    assert [(one.idle, one.weight) for one in found.options.tenants] == [(True, 2)] and found.options.databases == (8,)


def test_a_class_without_a_tenant_in_the_largest_mix_is_left_out(completed):
    rows = "".join(f"db{i},40MB,60,14\n" for i in range(40)) + "rare,40MB,5000,14\n"
    found = completed(HEADER + rows, databases=(1, 10))
    assert [one.weight for one in found.options.tenants] == [40] and found.options.databases == (1, 10)
    common, rare = found.options.tenant_table.classes
    assert (common.left_out, rare.left_out) == ("", "it is less than one of 10 tenants, the largest mix")
    assert len(yaml.safe_load(found.options.tenant_table.document)["classes"]) == 1
    assert any("with " in text and text.endswith("; 1 is left out.") for text in found.defaults_chosen)
    assert len(completed(HEADER + rows, databases=(1, 10), host_memory="7GB").options.tenants) == 1
    assert len(completed(HEADER + rows, databases=(50,), host_memory="7GB").options.tenants) == 2


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"tenants": "tenants.yaml"}, "--tenants and --tenants-from exclude each other"),
        ({"scale": 3}, "--scale does not go with --tenants-from, which makes classes with scale and rate"),
        ({"rate": 3.0}, "--rate does not go with --tenants-from"),
        ({"init_script": "a.sql"}, "--init-script does not go with --tenants-from"),
        ({"soak": "1h"}, "--soak does not go with --tenants-from"),
    ],
)
def test_what_a_table_cannot_have_is_refused(completed, requested, message):
    with pytest.raises(UsageError, match=message):
        completed(**requested)
