import dataclasses

import pytest

from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.local import LocalNode
from pgherd.prepare.load import RequestedLoad, data_of_init, own_mix, partitions, sampling, scripts


def asked(**options):
    given = dict.fromkeys(field.name for field in dataclasses.fields(RequestedLoad))
    flags = dict.fromkeys(("read_only", "allow_writes", "external", "check_consistency"), False)
    return RequestedLoad(**given | flags | {"workload": "select-only", "scripts": (), "given": frozenset(options)} | options)


def found(**words):
    request = asked(**words)
    return scripts(request, own_mix(request), LocalNode())


def test_a_builtin_is_one_script():
    assert found() == ((Script(source="builtin:select-only"),), True, [])
    assert found(workload="tpcb-like")[1] is False


def test_a_workload_of_our_own_brings_its_scripts():
    mix = own_mix(asked(workload="orders"))
    assert mix is not None and found(workload="orders")[0] == mix.scripts and own_mix(asked()) is None


def test_scripts_of_the_user_s_are_taken_to_write_unless_said():
    some, read_only, words = found(scripts=("a.sql@3",))
    assert (some[0].source, some[0].weight, read_only) == ("a.sql", 3, False) and "assumed to write;" in words[0]
    assert found(scripts=("a.sql",), read_only=True)[1] is True


def test_the_data_of_an_init_file_are_told(tmp_path):
    init = tmp_path / "init.sql"
    init.write_text("\\copy t FROM data.csv\n")
    (tmp_path / "data.csv").write_text("1\n")
    request = asked(init=str(init))
    data, said = data_of_init(LocalNode(), request.init)
    assert data is not None and data.files == ("data.csv",)
    assert said == ["--init-script reads data.csv: after a change to it, the database is loaded again."]
    init.write_text("\\copy t FROM PROGRAM 'seq 3'\n")
    data, said = data_of_init(LocalNode(), request.init)
    assert data is not None and not data.files and "runs a program" in said[0] and "pgherd clean --templates" in said[0]
    assert data_of_init(LocalNode(), None) == (None, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"workload": "orders", "external": True}, "does not go with --dsn"),
        ({"check_consistency": True}, "--check-consistency is for --workload orders"),
        ({"read_only": True}, "--read-only is for a --script"),
        ({"scripts": ("a.sql",), "read_only": True, "allow_writes": True}, "--allow-writes is its opposite"),
        ({"init": "a.sql"}, "--init-script fills a database for --script"),
    ],
)
def test_contradictions_are_said(words, message):
    with pytest.raises(UsageError, match=message):
        found(**words)


def test_so_much_is_logged():
    plain = (Script(source="builtin:select-only"),)
    assert sampling(plain, read_only=True) == 0.05 and sampling(plain, read_only=False) == 0.2
    assert sampling(plain, read_only=True, rate=5000.0) == 0.1 and sampling(plain, read_only=True, rate=10.0) == 1.0
    assert sampling((Script(source="a", name="payment"),), read_only=True) == 1.0


@pytest.mark.parametrize(("pace", "share"), [(None, 0.05), (0.00005, 0.05), (0.0003, 0.1), (0.0015, 0.5), (0.002, 1.0), (3.0, 1.0)])
def test_of_slow_scripts_of_the_users_own_a_larger_share_is_logged(pace, share):
    for read_only, least in ((True, 0.05), (False, 0.2)):  # where it writes, the pace is that of commits that wait for nothing
        assert sampling((Script(source="a.sql"),), read_only=read_only, user_scripts=True, pace=pace) == max(least, share)
    assert sampling((Script(source="builtin:select-only"),), read_only=True, pace=pace) == 0.05


def test_large_tables_are_parted_where_they_are_ours():
    assert partitions(asked()) == 1 and partitions(asked(partitions=4)) == 4
    assert partitions(asked(workload="random-block", partitions=8)) == 8
    assert partitions(asked(workload="orders", scripts=("a.sql",), partitions=2)) == 2, (
        "scripts without --init-script are on pgbench's tables"
    )


@pytest.mark.parametrize(
    ("words", "said"), [({"workload": "orders"}, "--workload orders"), ({"init": "/x.sql", "scripts": ("a",)}, "--init-script")]
)
def test_others_tables_are_not_parted(words, said):
    with pytest.raises(UsageError, match=f"--partitions .*{said}"):
        partitions(asked(partitions=2, **words))
