"""Change the texts of others for a stated time: ``fuzz.py --minutes 60 --seed 1 [READER…]``, one reader after another.

Each round of a reader is a run of its property tests with the next seed, which is printed if one fails.
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
FUZZ, FLEETS = "field_reports/test_fuzz.py", "field_reports/test_fuzz_fleets.py"
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
        "drivers/test_iperf3.py::test_only_a_whole_report_is_read",
    ],
    "conninfo": [f"{FUZZ}::test_any_text_is_a_dsn_or_refused"],
    "postgresql.conf": [f"{FUZZ}::test_any_text_is_a_configuration_or_refused"],
    "servers": [f"{FUZZ}::test_an_odd_list_of_servers_is_read_or_refused"],
    "prometheus": [f"{FUZZ}::test_an_odd_answer_of_prometheus_is_read_or_refused", f"{FUZZ}::test_what_answers_may_be_no_prometheus"],
    "runs": [f"{FUZZ}::test_an_odd_run_directory_is_opened_or_refused"],
    "demand": [
        f"{FLEETS}::test_a_written_demand_is_read_as_meant_or_refused",
        f"{FLEETS}::test_any_demand_is_read_or_refused",
        f"{FLEETS}::test_an_odd_capture_is_read_or_refused",
        f"{FUZZ}::test_an_odd_demand_of_prometheus_is_read_or_refused",
    ],
    "hosts": [
        f"{FLEETS}::test_written_constraints_are_read_as_meant_or_refused",
        f"{FLEETS}::test_any_constraints_are_read_or_refused",
        f"{FLEETS}::test_odd_classes_of_hosts_are_read_or_refused",
    ],
    "tenants": [
        f"{FLEETS}::test_odd_classes_of_tenants_are_read_or_refused",
        f"{FLEETS}::test_a_written_table_of_databases_is_read_as_meant_or_refused",
    ],
    "scenarios": [f"{FLEETS}::test_an_odd_scenario_is_read_or_refused"],
    "sql": [
        "workloads/test_script_parser.py::test_any_text_has_its_lines_in_order",
        "it/test_field_reports.py::test_psql_runs_the_commands_that_the_scanner_finds",
    ],
    "commands": ["drivers/test_command.py::test_no_output_breaks_it"],
    "samples": [
        "metrics/test_sampler.py::test_text_of_another_kind_is_a_value_error_or_skipped",
        "metrics/test_processes.py::test_other_text_is_refused_or_skipped",
        "metrics/test_guests.py::test_an_odd_line_is_a_reading_or_a_value_error",
        "metrics/test_guests.py::test_odd_statistics_are_a_reading_of_drives_or_a_value_error",
        "metrics/test_spool.py::test_any_lines_are_survived",
        "host/test_block_trace.py::test_other_lines_are_counted_and_nothing_else",
        "host/test_cgroup_parent.py::test_foreign_text_gives_an_empty_layout_and_no_error",
    ],
}
"""Reader → its property tests."""


def fuzz(reader: str, minutes: float, seed: int) -> tuple[int, bool]:
    """Run a reader's tests until the time is over or one fails. Return the number of examples, and whether all passed."""
    nodes = [str(TESTS / node) for node in READERS[reader]]
    options = ["-q", "-p", "no:cacheprovider", "--timeout=0", "--hypothesis-profile=fuzz", "--hypothesis-show-statistics"]
    examples, end = 0, time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        argv = [sys.executable, "-m", "pytest", *options, f"--hypothesis-seed={seed}", *nodes]
        finished = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=TESTS.parent)
        passing = re.findall(r"(\d+) passing\b", finished.stdout)
        examples += sum(map(int, passing))
        if finished.returncode != 0 or len(passing) < len(nodes):
            print(finished.stdout, finished.stderr, f"seed {seed}", sep="\n", flush=True)
            return examples, False
        seed += 1
    return examples, True


def main() -> int:
    """Return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="minutes for each reader")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31), help="of the first round of each reader")
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"all by default: {', '.join(READERS)}")
    arguments = parser.parse_args()
    unknown = set(arguments.readers) - set(READERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    failed = 0
    for reader in arguments.readers or READERS:
        examples, passed = fuzz(reader, arguments.minutes, arguments.seed)
        print(f"{reader}: {examples:,} examples from seed {arguments.seed}, {'passed' if passed else 'FAILED'}", flush=True)
        failed |= not passed
    return failed


if __name__ == "__main__":
    sys.exit(main())
