from pgherd.study.complete_options import StudyOptions


def test_options_without_variants_stay_as_they_are():
    options = StudyOptions()
    assert options.variant_options() == {} and options.hosts_in_turn == ()
    assert options.with_variant_options({}) is options and options.on_hosts(("a",)) is options
