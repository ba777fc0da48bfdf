"""Numbers that are numbered anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.members import Members


@settings(deadline=None)
@given(st.integers(1, 3000), st.lists(st.integers(0, 2999), max_size=200))
def test_places_are_those_of_a_sorted_list(n, wanted):
    wanted = [x for x in wanted if x < n]
    members = Members(n)
    for half in (wanted[::2], wanted[1::2]):
        members.add(np.array(half, np.int64))
    expected = sorted(set(wanted))
    assert members.numbers.tolist() == expected
    assert len(members) == len(expected)
    asked = list(range(n))
    assert members.places(np.array(asked, np.int64)).tolist() == [
        expected.index(x) if x in set(expected) else -1 for x in asked
    ]


def test_members_may_be_added_after_they_were_asked_for():
    members = Members(1000)
    members.add(np.array([999], np.int64))
    assert members.places(np.array([999], np.int64)).tolist() == [0]
    members.add(np.array([63, 64], np.int64))
    assert members.places(np.array([999, 64, 65], np.int64)).tolist() == [2, 1, -1]


def test_a_number_out_of_range_is_an_error():
    for number in (-1, 128):
        with pytest.raises(ValueError, match="for 128"):
            Members(100).add(np.array([number], np.int64))


def test_nothing_at_all():
    members = Members(0)
    members.add(np.zeros(0, np.int64))
    assert (len(members), members.numbers.tolist()) == (0, [])
