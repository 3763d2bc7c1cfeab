from typing import get_args

import pytest

from pgherd.model.deployment import GuestMemoryPolicy
from pgherd.model.errors import UsageError
from pgherd.runtimes.balloon_policy import SWITCHED, moves, refuse_what_cannot_be_given_back, reports


def test_each_policy_switches_one_thing_on() -> None:
    policies = get_args(GuestMemoryPolicy)
    assert set(SWITCHED) == set(policies)
    assert [moves(policy) for policy in policies] == [False, True, False]
    assert [reports(policy) for policy in policies] == [False, False, True]


def test_memory_that_cannot_be_given_back_is_refused() -> None:
    refuse_what_cannot_be_given_back("static", huge_pages=True, locked=True)
    refuse_what_cannot_be_given_back("guest-balloon", huge_pages=False, locked=False)
    with pytest.raises(UsageError, match="huge pages cannot be given back, so that policy 'guest-balloon'"):
        refuse_what_cannot_be_given_back("guest-balloon", huge_pages=True, locked=False)
    with pytest.raises(UsageError, match="locked cannot"):
        refuse_what_cannot_be_given_back("free-page-reporting", huge_pages=False, locked=True)
