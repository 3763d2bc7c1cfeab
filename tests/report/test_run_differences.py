from __future__ import annotations

from pgherd.model.deployment import VmOptions
from pgherd.report.run_differences import differences, names, same_kinds


def changed(record, **update):
    return record.model_copy(update=update)


def test_only_what_differs_is_listed_with_both_values(run8, synthetic):
    record = run8[0]
    other = changed(record, settings={**record.settings, "huge_pages": "on"}, postgres={"/x": "17.4"}, pgherd="0.2.0")
    result = differences([("a", record), ("b", other)])
    assert [row[0].text for row in result["settings"].rows] == ["huge_pages"]
    assert [cell.text for cell in result["settings"].rows[0]] == ["huge_pages", "off", "on"]
    assert names(result["versions"]) == ["PostgreSQL", "pgherd"]
    assert not result["host facts"].rows and not result["options"].rows
    assert same_kinds(result) == "Host facts, options are the same in all runs; settings, versions differ."


def test_what_only_one_has_differs_from_nothing(run8):
    result = differences([("a", run8[0]), ("b", changed(run8[0], tools={}))])
    assert ("python", "3.11.2", "–") in [tuple(cell.text for cell in row) for row in result["versions"].rows]


def test_a_few_kilobytes_of_memory_are_no_other_machine(run8, synthetic):
    facts = synthetic.host_facts(2.0)
    nearly = facts.model_copy(update={"memory": facts.memory - 200_000, "memory_available": 1})
    half = facts.model_copy(update={"memory": facts.memory // 2})

    def hosts(other):
        pair = [(name, changed(run8[0], hosts={"local": item})) for name, item in (("a", facts), ("b", other))]
        return names(differences(pair)["host facts"])

    assert hosts(nearly) == [] and hosts(half) == ["memory"]


def test_what_a_hypervisor_took_since_boot_is_no_other_host(run8, synthetic):
    facts = synthetic.host_facts(2.0)
    later = facts.model_copy(update={"core_note": f"{facts.core_note} (steal, 2.4 % since boot)"})
    pair = [(name, changed(run8[0], hosts={"local": item})) for name, item in (("a", facts), ("b", later))]
    assert names(differences(pair)["host facts"]) == []


def test_a_run_that_went_on_on_another_host_is_not_of_the_host_it_began_on(run8):
    result = differences([("a", run8[0]), ("b", changed(run8[0], resumed_on_changed_host=["After 5 trials …"]))])["host facts"]
    assert [tuple(cell.text for cell in row) for row in result.rows] == [("resumed", "–", "After 5 trials …")]


def test_options_within_options_are_told_apart_by_name(run8):
    def variants(clients):
        both = [{"name": "base", "options": {"clients": 2}}, {"name": "big", "options": {"clients": clients}}]
        return changed(run8[0], options={"variants": both, "n": (1, 2)})

    result = differences([("a", variants(4)), ("b", variants(8))])["options"]
    assert [tuple(cell.text for cell in row) for row in result.rows] == [("variants: big: options: clients", "4", "8")]


def test_the_users_files_are_told_apart_by_their_contents(run8):
    def given(run, digest):
        scripts = [{"name": None, "source": f"/runs/{run}/inputs/{number}-a.sql", "weight": number + 1} for number in range(2)]
        data = {"directory": f"/home/{run}", "files": ["a.csv"], "digest": "x"}
        options = {"scripts": scripts, "init": f"/runs/{run}/inputs/init-b.sql", "init_data": data}
        return changed(run8[0], run=run, options=options, inputs={"0-a.sql": "aa", "init-b.sql": digest})

    alike = differences([("a", given("one", "bb")), ("b", given("two", "bb"))])
    assert not alike["options"].rows and not alike["files"].rows
    result = differences([("a", given("one", "bb")), ("b", given("two", "cc"))])
    assert not result["options"].rows
    assert [tuple(cell.text for cell in row) for row in result["files"].rows] == [("init-b.sql", "bb", "cc")]
    assert "files" not in differences([("a", run8[0]), ("b", run8[0])])


def test_options_of_a_list_without_names_are_told_apart_by_place(run8):
    def given(first):
        return changed(run8[0], options={"scripts": [{"name": None, "weight": first}, {"name": None, "weight": 1}]})

    assert names(differences([("a", given(1)), ("b", given(2))])["options"]) == ["scripts: 1: weight"]


def test_hosts_of_a_cluster_are_told_apart_by_name(run8, synthetic):
    two = {"n1": synthetic.host_facts(2.0, "h1"), "n2": synthetic.host_facts(2.0, "h2")}
    other = {**two, "n2": synthetic.host_facts(4.0, "h2")}
    result = differences([("a", changed(run8[0], hosts=two)), ("b", changed(run8[0], hosts=other))])
    assert names(result["host facts"]) == ["n2 cores", "n2 logical cpus", "n2 physical cores"]


def test_files_that_only_one_run_has_differ_from_none(run8):
    files = differences([("a", run8[0]), ("b", changed(run8[0], inputs={"init-b.sql": "bb"}))])["files"]
    assert [tuple(cell.text for cell in row) for row in files.rows] == [("init-b.sql", "–", "bb")]


def test_what_no_hypervisor_is_asked_for_is_no_difference(run8):
    def given(guest):
        return changed(run8[0], options={"vcpus": 1, "guest": None if guest is None else guest.model_dump(mode="json")})

    assert not differences([("a", given(None)), ("b", given(VmOptions()))])["options"].rows
    result = differences([("a", given(None)), ("b", given(VmOptions(pinned=True)))])["options"]
    assert [tuple(cell.text for cell in row) for row in result.rows] == [("guest: pinned", "–", "True")]


def test_an_option_that_is_absent_is_none(run8):
    old, new = changed(run8[0], options={"n": 1}), changed(run8[0], options={"n": 1, "guest": None, "arm": {"init_data": None}})
    assert not differences([("a", old), ("b", new)])["options"].rows
    result = differences([("a", old), ("b", changed(new, options={"n": 1, "guest": "small"}))])["options"]
    assert [tuple(cell.text for cell in row) for row in result.rows] == [("guest", "–", "small")]
