def test_reads_what_the_kernel_counts(parsed, text) -> None:
    values = parsed("vmstat", "proc-vmstat")["host"]
    lines = dict(line.split() for line in text("proc-vmstat").splitlines())
    assert values["vm.pgmajfault"] == int(lines["pgmajfault"]) > 0
    assert values["vm.refault_file"] == int(lines["workingset_refault_file"]) > 0
    assert values["vm.pswpin"] == values["vm.oom_kill"] == 0
