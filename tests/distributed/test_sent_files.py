import pytest

from pgherd.distributed.sent_files import SentFiles
from pgherd.model.errors import UsageError
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.scaling.options import ScalingOptions


@pytest.fixture
def sent():
    """What was put on the other host is in ``sent.there``."""
    there = {}

    def put(name, data):
        there[f"/there/{name}"] = data
        return f"/there/{name}"

    found = SentFiles(put)
    found.there = there
    return found


@pytest.fixture
def file(tmp_path):
    def make(name):
        (tmp_path / name).write_text(name)
        return f"{tmp_path}/{name}"

    return make


def test_a_request_s_files_are_sent_and_named_as_they_lie_there(sent, file):
    script, init, like = file("new.sql"), file("fill.sql"), file("postgresql.conf")
    found = sent.send(DensityRequest(script=(f"{script}@3", "builtin:select-only"), init=init, like=like))
    assert found.script == ("/there/000-new.sql@3", "builtin:select-only")
    assert (found.init, found.like) == ("/there/001-fill.sql", "/there/002-postgresql.conf")
    assert sent.there == {
        "/there/000-new.sql": b"new.sql",
        "/there/001-fill.sql": b"fill.sql",
        "/there/002-postgresql.conf": b"postgresql.conf",
    }
    assert sent.back == {"/there/000-new.sql": script, "/there/001-fill.sql": init, "/there/002-postgresql.conf": like}


def test_a_server_to_be_like_is_no_file(sent):
    asked = DensityRequest(like="postgresql://db/app")
    assert sent.send(asked) == asked and sent.there == {}


def test_files_of_variants_and_of_arms_are_sent_too(sent, file):
    one, other = file("one.sql"), file("other.sql")
    asked = CompareRequest(variant=("plain", f"mine:script={one}@2,work_mem=8MB"))
    assert sent.send(asked).variant == ("plain", 'mine:script="/there/000-one.sql@2",work_mem="8MB"')
    arms = [{"name": "x", "study": "density", "options": {"script": [other], "scale": 2}}, {"name": "y", "study": "density"}]
    found = sent.send(CompareRequest(arms=arms))
    assert found.arms[0].options == {"script": ("/there/001-other.sql@1",), "scale": 2} and found.arms[1].options == {}


def test_what_cannot_be_read_is_said(sent):
    with pytest.raises(UsageError, match="/nowhere.sql: No such file"):
        sent.send(DensityRequest(script=("/nowhere.sql",)))


def test_complete_options_name_the_user_s_own_files_again(sent, file):
    script = file("new.sql")
    there = sent.send(DensityRequest(script=(script,))).script[0].partition("@")[0]
    own = {"cores": 2, "memory": 2**30, "vcpus": 1, "pg_bin": "/pg", "pg_version": "18.6", "scripts": [{"source": there, "weight": 2}]}
    options = ScalingOptions.model_validate(
        {**own, "clients": [1], "most": 1, "variants": [{"name": "a", "options": own}, {"name": "b", "options": {**own, "init": there}}]}
    )
    found = sent.returned(options)
    assert [one.options.scripts[0].source for one in found.variants] == [script, script]
    assert found.scripts[0].source == found.variants[1].options.init == script and found.scripts[0].weight == 2
    assert SentFiles(None).returned(options) is options
