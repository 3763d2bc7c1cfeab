from pgherd.model.counted import DATABASE, MIXED, counted, counted_by
from pgherd.model.load import Load
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial


def result(*drivers):
    hosts = [{"name": f"h{number}"} for number in range(len(drivers))]
    loads = {host["name"]: Load(driver=driver) for host, driver in zip(hosts, drivers, strict=True)}
    trial = Trial.model_validate({"point": {}, "deployment": {"hosts": hosts}, "phases": [{"loads": loads}]})
    return TrialResult(id="0001", trial=trial, started=0, ended=1)


def test_each_driver_counts_something_else():
    assert counted([result("pgbench")]) == DATABASE and DATABASE.unit == "tps"
    assert counted([result("fio"), result("fio", "fio")]).unit == "IOPS"
    assert counted([result("iperf3")]).many == "bytes" and counted([result("command")]).one == "run"


def test_together_they_count_nothing_that_could_be_named():
    assert counted([result("fio"), result("pgbench")]) == MIXED


def test_where_nothing_is_loaded_it_is_transactions():
    assert counted([]) == counted([result()]) == DATABASE == counted_by("a driver of somebody's")
