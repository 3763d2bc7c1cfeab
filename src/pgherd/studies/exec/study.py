"""Declaration of the exec study."""

from __future__ import annotations

from pgherd.study.study import Study

STUDY = Study(
    package="pgherd.studies.exec",
    name="exec",
    rank=12,
    help="Benchmark any command: duration, CPU, I/O.",
    examples=(
        ("pgherd exec -- pg_dump -Fc -f /dev/null mydb", "duration, CPU, I/O of a dump"),
        ("pgherd exec --extract 'rate=([0-9.]+) MB/s' -- dd if=/dev/zero of=/tmp/x bs=1M count=500 oflag=direct", ""),
    ),
    capability="any command: its duration, the numbers in its output, CPU and I/O",
    needs_server=False,
    common=(*("extract", "unit", "env", "cwd", "timeout", "as-root", "duration", "repeats", "time-budget", "dry-run"),),
    request="ExecRequest",
    resolved="ExecOptions",
    propose_module="options",
    each_host=True,
)
