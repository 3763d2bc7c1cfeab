"""Change the texts of others for a stated time: ``fuzz.py --minutes 60 [READER…]``, one reader after another.

Each round of a reader is a run of its property tests with another seed, which is printed if one fails.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
FUZZ = "field_reports/test_fuzz.py"
READERS = {
    "fit": [f"{FUZZ}::test_a_written_table_is_read_as_meant_or_refused", f"{FUZZ}::test_any_table_is_read_or_refused"],
    "pgbench": [
        f"{FUZZ}::test_a_torn_report_of_pgbench_has_the_same_numbers_or_is_refused",
        "drivers/test_pgbench.py::test_truncated_output_is_a_result_or_a_value_error",
        "drivers/test_pgbench.py::test_any_text_is_a_result_or_a_value_error",
    ],
    "fio": [f"{FUZZ}::test_an_odd_report_of_fio_is_read_or_refused", "drivers/test_fio.py::test_no_text_is_more_than_a_refusal"],
    "iperf3": [
        f"{FUZZ}::test_an_odd_report_of_iperf3_is_read_or_refused",
        "drivers/test_iperf3.py::test_a_torn_report_is_a_value_error_or_read",
    ],
    "conninfo": [f"{FUZZ}::test_any_text_is_a_dsn_or_refused"],
    "postgresql.conf": [f"{FUZZ}::test_any_text_is_a_configuration_or_refused"],
    "servers": [f"{FUZZ}::test_an_odd_list_of_servers_is_read_or_refused"],
    "prometheus": [f"{FUZZ}::test_an_odd_answer_of_prometheus_is_read_or_refused", f"{FUZZ}::test_what_answers_may_be_no_prometheus"],
    "runs": [f"{FUZZ}::test_an_odd_run_directory_is_opened_or_refused"],
}
"""Reader → its property tests."""


def fuzz(reader: str, minutes: float) -> tuple[int, bool]:
    """Run a reader's tests until the time is over or one fails. Return the number of examples, and whether all passed."""
    nodes = [str(TESTS / node) for node in READERS[reader]]
    options = ["-q", "-p", "no:cacheprovider", "--timeout=0", "--hypothesis-profile=fuzz", "--hypothesis-show-statistics"]
    examples, end = 0, time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(2**32)
        argv = [sys.executable, "-m", "pytest", *options, f"--hypothesis-seed={seed}", *nodes]
        finished = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=TESTS.parent)
        passing = re.findall(r"(\d+) passing\b", finished.stdout)
        examples += sum(map(int, passing))
        if finished.returncode != 0 or len(passing) < len(nodes):
            print(finished.stdout, finished.stderr, f"seed {seed}", sep="\n", flush=True)
            return examples, False
    return examples, True


def main() -> int:
    """Return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="minutes for each reader")
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"all by default: {', '.join(READERS)}")
    arguments = parser.parse_args()
    unknown = set(arguments.readers) - set(READERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    failed = 0
    for reader in arguments.readers or READERS:
        examples, passed = fuzz(reader, arguments.minutes)
        print(f"{reader}: {examples:,} examples, {'passed' if passed else 'FAILED'}", flush=True)
        failed |= not passed
    return failed


if __name__ == "__main__":
    sys.exit(main())
