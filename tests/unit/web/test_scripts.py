"""The scripts of the pages: types, tests, and how they are put together."""

import json
import re

import pytest

from js_tools import node, tool
from rota.core.reasons import Reason
from rota.web import asset, asset_names, bundle
from rota.wire import ENDED, STATES
from shared_data import CHECKOUT

WEB = CHECKOUT / "src" / "rota" / "web"
SCRIPTS = [name for name in asset_names() if name.endswith(".js")]
TOP = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


def test_types_are_right():
    checked = node(tool("typescript/bin/tsc"), "-p", WEB / "jsconfig.json")
    assert checked.stdout == ""
    assert checked.returncode == 0


def test_functions_do_what_they_say():
    done = node("--test", CHECKOUT / "tests" / "js")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert int(passed[1]) >= 15


def test_every_script_is_checked_and_small():
    assert "app.js" in SCRIPTS
    for name in SCRIPTS:
        text = asset(name).decode()
        assert text.startswith("// @ts-check\n"), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text), name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name


@pytest.mark.parametrize("page", ["report.js", "watch.js"])
def test_modules_can_stand_side_by_side_in_one_script(page):
    text = bundle("map.js", "lanes.js", "chart.js", page)
    assert "import " not in re.sub(r"/\*\*.*?\*/|//.*", "", text, flags=re.DOTALL)
    assert not re.search(r"^export ", text, re.MULTILINE)
    names = TOP.findall(text)
    assert len(names) == len(set(names)), "a name stands twice at the top"
    assert {"ClusterMap", "LaneChart", "TimeChart", "duration"} <= set(names)


def test_a_bundle_is_a_script(tmp_path):
    file = tmp_path / "bundle.js"
    file.write_text(bundle("map.js", "lanes.js", "chart.js") + "\nprint(timeStep(3600, 8));\n")
    ran = node("-e", f"globalThis.print = console.log; {file.read_text()}")
    assert (ran.stdout, ran.stderr) == ("600\n", "")


def test_the_page_knows_all_states_and_reasons():
    script = (
        f"import('{(WEB / 'format.js').as_uri()}').then(f => console.log(JSON.stringify("
        "[Object.keys(f.JOB_STATES), [...f.OVER], Object.keys(f.REASONS)])))"
    )
    states, over, reasons = json.loads(node("-e", script).stdout)
    assert set(states) == set(STATES)
    assert set(over) == set(ENDED)
    assert set(reasons) == {reason.label for reason in Reason} - {"none"}
