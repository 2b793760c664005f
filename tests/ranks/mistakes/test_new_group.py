"""A rank did not call `new_group`."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import Collective


def made(number=1, members=(0, 1)):
    return Collective(f"groups of {members}", number, "new_group", AT, ranks=(0,), members=members)


def test_a_group_that_one_rank_did_not_make_is_named():
    (found,) = mistakes([made(), made(2)], [made()])
    assert found.text == "Rank 1 did not call new_group #2, as others did"
    assert found.at == AT


def test_a_group_that_all_made_is_right():
    assert mistakes([made()], [made()]) == ()


def test_a_group_of_its_members_alone_is_right():
    assert mistakes([made(members=(0,))], []) == ()
