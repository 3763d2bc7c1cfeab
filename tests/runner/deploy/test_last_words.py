from pgherd.runner.deploy import last_words

LOG = """\
2026-01-01 10:00:00.000 UTC [10] LOG:  database system is ready to accept connections
2026-01-01 10:00:01.000 UTC [11] ERROR:  relation "things" does not exist at character 15
2026-01-01 10:00:02.000 UTC [10] LOG:  server process (PID 11) was terminated by signal 9: Killed
2026-01-01 10:00:02.100 UTC [12] FATAL:  the database system is in recovery mode
2026-01-01 10:00:03.000 UTC [10] LOG:  database system is shut down""".splitlines()


def test_of_a_log_what_tells_of_trouble():
    said = last_words.of_log(LOG).splitlines()
    assert said[0] == "the server's log ends with:"
    assert said[1:] == LOG[1:3], "that others could not connect meanwhile tells nothing"


def test_of_a_long_log_the_last_four():
    errors = [f"ERROR:  number {n}" for n in range(9)]
    assert last_words.of_log(errors).splitlines()[1:] == errors[-4:]


def test_of_a_log_that_tells_of_none_its_end():
    assert last_words.of_log([LOG[0], LOG[4]]).splitlines()[1:] == [LOG[0], LOG[4]]
    assert last_words.of_log([]) == "nothing can be read of the server's log"


def test_of_memory_what_to_do():
    said = last_words.of_memory("db01", 2)
    assert "container db01" in said and "ended 2 processes in it" in said and "raise --memory" in said
