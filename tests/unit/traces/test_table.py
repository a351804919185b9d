"""Big tables: types, headers, missing values and line numbers."""

import pytest

from rota.core.errors import TraceError
from rota.traces.table import Column, Layout, Table

LAYOUT = Layout(
    (
        Column("id", required=True),
        Column("size", "number", required=True, least=0),
        Column("at", "time"),
        Column("extra", "number", optional=True),
    ),
    headerless=True,
)
HEADER = "id,size,at,extra\n"


@pytest.fixture
def table(tmp_path):
    """Return `table(text, bad)`: the chunks of a file."""

    def make(text, bad="refuse"):
        path = tmp_path / "t.csv"
        path.write_bytes(text.encode())
        return Table(path, LAYOUT, bad=bad)

    return make


def rows(chunks):
    return chunks.whole().rows()


ONE = ("a", 1.0, 1585699205.0, 2.0)


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "a,1,2020-04-01 00:00:05,2\n",
        "a,1,2020-04-01 00:00:05,2\n",  # no header
        "a,1,2020-04-01 00:00:05,2,\n",  # no header, and a comma too many
        HEADER + "a,1,2020-04-01 00:00:05,2,\n",  # a comma too many
        HEADER + "a,1,2020-04-01 00:00:05,2",  # no newline at the end
        HEADER.strip() + "\r\na,1,2020-04-01 00:00:05,2\r\n",
        HEADER + '"a","1","2020-04-01 00:00:05","2"\n',
        HEADER + " a , 1 , 2020-04-01 00:00:05 , 2 \n",
        "\n\n" + HEADER + "\na,1,2020-04-01 00:00:05,2\n\n",
        "size,id,other,at,extra\n1,a,?,2020-04-01 00:00:05,2\n",
        "\ufeff" + HEADER + "a,1,2020-04-01 00:00:05,2\n",
    ],
)
def test_one_row_in_many_dresses(table, text):
    chunks = table(text)
    assert rows(chunks) == [ONE]
    assert chunks.quality.rows == 1


@pytest.mark.parametrize("missing", ["", "None", "NaN", "nan", "NULL", "NA", "Unknown"])
def test_missing_values(table, missing):
    chunks = table(f"{HEADER}a,1,{missing},{missing}\n")
    assert rows(chunks) == [("a", 1.0, None, None)]


def test_absent_optional_columns_and_unused_ones(table):
    chunks = table("id,size,at,colour\na,1,,red\n")
    assert rows(chunks) == [("a", 1.0, None, None)]
    assert chunks.unused == ["colour"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a,x,,", "column 'size': 'x' is not a number"),
        ("a,inf,,", "column 'size': 'inf' is not a finite number"),
        ("a,1_0,,", "column 'size': '1_0' is not a number"),
        ("a,-1,,", "column 'size': '-1' is less than 0"),
        ("a,,,", "column 'size': '' is missing"),
        (",1,,", "column 'id': '' is missing"),
        ("a", "column 'size': '' is missing"),
        ("a,1,2020-02-30 00:00:00,", "column 'at': '2020-02-30 00:00:00' is not a time"),
        ("a,1,2020-04-01 00:00:05,2,9", "has 5 fields but the table has 4 columns"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_or_dropped_and_counted(table, line, problem):
    text = f'{HEADER}"b\nb",1,,\n\n{line}\nc,1,,\n'
    with pytest.raises(
        TraceError, match=r"line 5.*drop such rows with the option bad=drop"
    ) as told:
        rows(table(text))
    assert problem in str(told.value)
    chunks = table(text, "drop")
    assert [row[0] for row in rows(chunks)] == ["b\nb", "c"]
    assert chunks.quality.rows == 3
    assert sum(chunks.quality.dropped.values()) == 1


def test_the_quick_and_the_careful_way_agree(table):
    body = "".join(f"j{n},{n},2020-04-01 00:00:05,\n" for n in range(50))
    careful = body.replace("j0,", '"j0",')
    assert rows(table(HEADER + body)) == rows(table(HEADER + careful))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("id,at\na,\n", "there is no column 'size': add it"),
        ("id,id,size,at\na,b,1,\n", "column 'id' is there twice"),
        (HEADER, "has a header but no rows"),
        ("a,b\n", "has 2 fields, but this table has 4"),
        ("id,size,at\na,1,\0\n", "is not UTF-8 text"),
    ],
)
def test_a_table_that_cannot_be_used(table, text, problem):
    with pytest.raises(TraceError, match=problem):
        rows(table(text))
