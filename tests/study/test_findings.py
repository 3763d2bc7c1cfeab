from pgherd.analysis.intervals import mean_interval
from pgherd.study.findings import as_finding, labelled_name, missing


def test_an_estimate_keeps_its_interval_and_its_own_note_comes_last():
    finding = as_finding(mean_interval([1.5, 2.0, 2.5]), "ms", "of the servers", experiment="E1", published="2 ms")
    assert (finding.value, finding.unit, finding.n, finding.experiment, finding.published) == (2.0, "ms", 3, "E1", "2 ms")
    assert finding.low is not None and finding.high is not None and finding.low < 2 < finding.high
    alone = as_finding(mean_interval([1.0]), "ms", "of one server", method="looked once")
    assert alone.low is None and alone.method == "looked once"
    assert alone.note.startswith("of one server; ") and len(alone.note) > len("of one server; ")


def test_a_finding_without_a_number_says_why():
    result = missing("tps", "nothing ran", experiment="E3")
    assert (result.value, result.n, result.note, result.experiment) == (None, 0, "nothing ran", "E3")


def test_a_name_with_labels():
    assert labelled_name("ratio", layout="dedicated", overcommit=0.3) == "ratio{layout=dedicated,overcommit=0.3}"
