"""Ways of dividing a request over nodes, computed by hand."""

from rota.placement.choices import (
    best_node,
    enough,
    fewest_nodes,
    first_node,
    in_order,
    whole_nodes,
)


def test_in_order_takes_what_each_node_has():
    assert in_order(5, [0, 1, 2], [2, 0, 4]) == [(0, 2), (2, 3)]
    assert in_order(5, [2, 0], [2, 9, 4]) == [(2, 4), (0, 1)]
    assert in_order(7, [0, 1, 2], [2, 0, 4]) is None


def test_first_node_is_the_first_with_room_for_all():
    assert first_node(3, [0, 1, 2], [2, 3, 8]) == 1
    assert first_node(9, [0, 1, 2], [2, 3, 8]) == -1


def test_best_node_breaks_ties_by_order():
    offers = [8, 4, 4, 2]
    assert best_node(3, range(4), offers, offers.__getitem__) == 1
    assert best_node(3, [2, 1], offers, offers.__getitem__) == 2
    assert best_node(9, range(4), offers, offers.__getitem__) == -1


def test_fewest_nodes_uses_the_largest_and_puts_the_rest_where_it_fits_best():
    # 8 and 6 make 14; the remaining 2 fit best on the node with 2, not on the one with 4
    assert fewest_nodes(16, range(5), [4, 8, 2, 6, 3]) == [(1, 8), (3, 6), (2, 2)]
    assert fewest_nodes(23, range(5), [4, 8, 2, 6, 3]) == [(1, 8), (3, 6), (0, 4), (4, 3), (2, 2)]
    assert fewest_nodes(24, range(5), [4, 8, 2, 6, 3]) is None


def test_whole_nodes_leaves_the_rest_to_the_caller():
    # node 1 is not idle; node 3 is larger than what remains
    assert whole_nodes(9, range(4), [4, 3, 4, 8], [4, 4, 4, 8]) == ([(0, 4), (2, 4)], 1)
    assert whole_nodes(9, [3, 0, 1, 2], [4, 3, 4, 8], [4, 4, 4, 8]) == ([(3, 8)], 1)
    # a node that could never serve any of it is not idle but useless
    assert whole_nodes(4, range(2), [0, 4], [0, 4]) == ([(1, 4)], 0)


def test_enough_must_come_from_one_kind():
    assert enough(5, [[0, 1], [2]], [2, 3, 1])
    assert not enough(6, [[0, 1], [2]], [2, 3, 1])
