from dataclasses import replace

import pytest

from pgherd.model.analysis import Thresholds
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment
from pgherd.prepare.merge import join_hosts, same_options, versions_text
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.studies.network.options import NetworkOptions

OPTIONS = NetworkOptions(links=({"name": "b", "host": "b"},), host_cores=2)
ONE = PreparedStudy(
    study="disk",
    options=OPTIONS,
    environment=RunEnvironment(runtime="process", cores=2, memory=1),
    thresholds=Thresholds(),
    facts=HostFacts(hostname="a", kernel="6.1", cores=2, logical_cpus=2, memory=4, memory_available=2),
    installation=None,
    defaults_chosen=("fio 3.33.", "a file of 2 GB."),
    settings=(),
    host_changes=("a file",),
    disk=3,
    memory=5,
    confirm=("a loop device",),
    tools={"fio": "3.33"},
    typed=("/dev/sdb",),
)


def test_what_all_say_is_said_once_and_what_some_say_with_their_names():
    other = replace(ONE, defaults_chosen=("fio 3.28.", "a file of 2 GB."), tools={"fio": "3.28"}, confirm=(), disk=4)
    result = join_hosts({"a": ONE, "b": other}, same_options({"a": OPTIONS, "b": OPTIONS}))
    assert result.defaults_chosen == ("a: fio 3.33.", "a file of 2 GB.", "b: fio 3.28.")
    assert result.host_changes == ("on each of the 2 hosts: a file",) and result.confirm == ("on a: a loop device",)
    assert result.typed == ("a:/dev/sdb", "b:/dev/sdb"), "each host's device is typed for itself"
    assert result.tools == {"fio": "3.33 on a, 3.28 on b"} and (result.disk, result.memory) == (7, 10)
    assert result.options is OPTIONS and result.facts is ONE.facts


def test_one_account_is_used_on_all():
    other = replace(ONE, environment=ONE.environment.model_copy(update={"run_as": "postgres"}))
    with pytest.raises(UsageError, match="would run as different users: the agent's user on a, postgres on b; set --run-as"):
        join_hosts({"a": ONE, "b": other}, OPTIONS)


def test_one_version_is_told_once():
    assert versions_text({"a": "3.12", "b": "3.12"}) == "3.12"
