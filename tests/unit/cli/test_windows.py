"""`rota maintenance` and `rota reserve`, as an operator types them."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("daemon")


def test_planned_listed_and_given_up(rota):
    code, _, err = rota("maintenance", "add", "n[1-2]", "--start", "2h", "--for", "1h")
    assert (code, err.split(",")[0]) == (0, "maintenance-1: n1")
    added = rota(
        "reserve", "add", "--gpus", "4", "--user", "ann", "--name", "anns", "--end",
        "2999-01-01T08:00", "-o", "json",
    )  # fmt: skip
    assert json.loads(added[1])["kind"] == "reservation"
    assert [window["name"] for window in json.loads(rota("reserve", "ls", "-o", "json")[1])] == [
        "anns"
    ]
    assert "maintenance-1" in rota("maintenance", "ls")[1]
    code, _, err = rota("reserve", "rm", "maintenance-1")
    assert (code != 0, "`rota maintenance rm maintenance-1` ends it" in err) == (True, True)
    assert rota("maintenance", "rm", "maintenance-1") == (0, "", "maintenance-1: removed\n")
    assert rota("maintenance", "ls") == (0, "", "nothing is planned\n")
    code, _, err = rota("reserve", "rm", "other")
    assert (code != 0, "there is no maintenance or reservation 'other'" in err) == (True, True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("reserve", "add", "n1"), "a reservation is for somebody: give --user or --queue"),
        (("reserve", "add", "--user", "a"), "either NODES or --gpus N"),
        (("reserve", "add", "n1", "--gpus", "4", "--user", "a"), "either NODES or --gpus N"),
        (("maintenance", "add", "n1", "--start", "soon"), "give a time from now, e.g. 2h"),
        (("maintenance", "add", "n1", "--for", "1h", "--end", "2h"), "exclude each other"),
        (("maintenance", "add", "n[1"), "its brackets do not match"),
    ],
)
def test_what_cannot_be_read_is_said(rota, args, message):
    code, _, err = rota(*args)
    assert code != 0
    assert message in err
