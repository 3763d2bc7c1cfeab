def test_reads_the_host_in_bytes(parsed) -> None:
    values = parsed("memory", "proc-meminfo")["host"]
    assert values["memory.total"] == 24684096 * 1024
    assert 0 < values["memory.free"] < values["memory.total"]
    assert values["memory.swap_total"] == 0
    assert len(values) == 14
