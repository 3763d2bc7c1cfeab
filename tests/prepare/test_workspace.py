import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.prepare.workspace import open_workspace

pytestmark = pytest.mark.usefixtures("own_directories")


def test_its_directory_is_removed_after_an_error_too():
    with pytest.raises(KeyError), open_workspace(LocalNode(), None, dry=True) as workspace:
        assert workspace.directory.is_dir()
        raise KeyError
    assert not workspace.directory.exists()


def test_servers_of_a_user_that_is_not_there_are_refused():
    with pytest.raises(UsageError, match="no-such-user"), open_workspace(LocalNode(), "no-such-user", dry=True):
        pass
