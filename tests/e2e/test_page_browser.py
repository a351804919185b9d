"""The live page in a real browser, on a real daemon: what each of its users does there."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from agents_net import eventually
from claims import claimed_ports
from daemon_process import PATIENCE_S, serving
from js_tools import tool
from rota.wire import PEOPLE

PATIENCE_MS = 1_000 * PATIENCE_S
WATCH = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`);
});
"""
AXE = """async (source) => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
}"""
VIEWS = {  # least role, by view
    "Overview": "viewer", "Jobs": "viewer", "Submit": "user", "Cluster": "viewer",
    "Timeline": "viewer", "Queues": "viewer", "Nodes": "viewer", "Policy": "viewer",
    "People": "admin", "Log": "operator", "Help": "viewer",
}  # fmt: skip
CONFIGURATION = """
queues: {vision: {quota: 3}, language: {quota: 1, weight: 2}}
permissions: {undeclared_queues: true}
"""


class Site:
    """A daemon, and people who look at its page."""

    def __init__(self, daemon, browser, port):
        self.daemon = daemon
        self.browser = browser
        self.url = f"http://127.0.0.1:{port}"
        self.people = {"admin": daemon.client}
        for role in ("viewer", "user", "operator"):
            token = daemon.client.create_token(role, role)
            self.people[role] = daemon.connect(token=token)
        self.said, self.asked, self.contexts = [], [], []

    def browse(self, **options):
        """Open a page of a browser that knows nobody yet."""
        context = self.browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.add_init_script(WATCH)
        context.set_default_timeout(PATIENCE_MS)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and self.hear(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        return page

    def hear(self, text):
        # the browser itself tells of answers that are no success; the page deals with them
        if not text.startswith("Failed to load resource"):
            self.said.append(text)

    def log_in(self, role, page=None, **options):
        """Log somebody in, as `rota web` does."""
        page = page or self.browse(**options)
        page.goto(self.url + self.people[role].web_code().path)
        page.get_by_role("link", name="Overview", exact=True).wait_for()
        return page

    def close(self):
        for context in self.contexts:
            context.close()


@pytest.fixture(scope="module")
def common_site(tmp_path_factory, browser):
    folder = tmp_path_factory.mktemp("page")
    config = folder / "rota.yaml"
    config.write_text(CONFIGURATION)
    (port,) = claimed_ports(1)
    arguments = ("--nodes", "2x2", "--config", config, "--listen", f"127.0.0.1:{port}")
    with serving(folder, *arguments) as daemon:
        site = Site(daemon, browser, port)
        yield site
        for role in ("viewer", "user", "operator"):
            site.people[role].close()


@pytest.fixture
def site(common_site):
    """Return the site; whatever happens there, no error and no request elsewhere may occur."""
    common_site.said.clear()
    common_site.asked.clear()
    common_site.contexts.clear()
    yield common_site
    common_site.close()
    common_site.daemon.clear()
    assert common_site.said == []
    hosts = {urlsplit(url).netloc for url in common_site.asked if not url.startswith("blob:")}
    assert hosts == {urlsplit(common_site.url).netloc}


def go(page, view):
    page.get_by_role("navigation").get_by_role("link", name=view, exact=True).click()
    page.get_by_role("heading", level=1).first.wait_for()


def until(page, condition):
    """Wait until something is so; no script of the page may evaluate a string, we may."""
    return eventually(lambda: page.evaluate(condition), PATIENCE_S, 0.05)


def chip(page, text):
    """Wait until the state of the job on the page is this."""
    page.locator(".heading .chip", has_text=text).wait_for()


def test_a_browser_whose_store_never_answers_is_welcomed_and_logs_in(site):
    page = site.browse()
    page.add_init_script("IDBFactory.prototype.open = () => ({})")
    page.goto(site.url + "/#/submit")
    page.get_by_text("rota web", exact=True).wait_for()
    site.log_in("user", page)


def test_a_newcomer_submits_watches_asks_and_cancels(site, tmp_path):
    page = site.browse()
    page.goto(site.url + "/#/submit")
    page.get_by_text("rota web", exact=True).wait_for()
    site.log_in("user", page)
    go(page, "Submit")

    page.get_by_label("Command").fill("echo hello; printf '\\033[31mred\\033[0m\\n'; "
                                      "echo trouble >&2; sleep 1000")  # fmt: skip
    page.get_by_label("Name", exact=True).fill("first-steps")
    page.get_by_label("GPUs", exact=True).fill("-1")
    assert "rota submit --gpus -1 --name first-steps -- sh -c" in page.inner_text(".command")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.locator("[data-field='resources.gpus'] .error", has_text="gpus").wait_for()
    page.get_by_label("GPUs", exact=True).fill("2")
    page.get_by_label("Nodes", exact=True).fill("2")
    page.get_by_role("button", name="Submit", exact=True).click()

    page.get_by_role("heading", name="first-steps").wait_for()
    chip(page, "Running")
    screen = page.get_by_role("log")
    for text in ("hello", "red", "trouble"):
        screen.get_by_text(text, exact=True).first.wait_for()
    assert screen.locator(".f1").first.inner_text() == "red"
    page.get_by_role("button", name="Errors", exact=True).click()
    screen.get_by_text("trouble").first.wait_for()
    assert "hello" not in screen.inner_text()
    with page.expect_download() as started:
        page.get_by_role("button", name="Download").click()
    started.value.save_as(tmp_path / "log")
    assert (tmp_path / "log").read_text() == "trouble\n"

    first = page.url.rpartition("/")[2]
    page.get_by_role("link", name="Clone").click()
    until(page, "document.querySelector('#f-name')?.value === 'first-steps'")
    page.get_by_label("Name", exact=True).fill("second")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name="second").wait_for()
    chip(page, "Waiting")
    why = page.locator("section.why")
    why.get_by_text("GPU").first.wait_for()
    why.get_by_text("simulation", exact=False).last.wait_for()
    assert "probability between" in why.inner_text() or "not expected" in why.inner_text()
    page.get_by_role("button", name="Hold").click()
    chip(page, "Held")
    page.get_by_role("button", name="Release").click()
    chip(page, "Waiting")

    page.goto(f"{site.url}/#/jobs/{first}")
    page.get_by_role("heading", name="first-steps").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="End it").click()
    chip(page, "Cancelled")
    page.get_by_text("Cancelled by user").wait_for()
    go(page, "Jobs")
    page.get_by_role("link", name="second").click()
    chip(page, "Running")


def test_what_a_job_measures_is_plotted(site):
    run = (
        'for i in 1 2 3; do echo "{\\"loss\\": 0.$i, \\"gpu_util\\": 0.75}" >> '
        "$ROTA_REPORT_FILE; sleep 0.2; done; sleep 1000"
    )  # fmt: skip
    job = site.daemon.submit(run, gpus=1)
    site.daemon.until(job, "RUNNING")
    page = site.log_in("admin")
    page.goto(f"{site.url}/#/jobs/{job}")
    page.locator("figcaption", has_text="loss").wait_for()
    assert page.locator("figure canvas[aria-label^='loss; last values: loss 0.']").count() == 1
    page.goto(f"{site.url}/#/cluster?by=use")
    until(page, f"rotaLive.board.jobs.get({job})?.used === 0.75")


def test_an_operator_drains_a_node_and_jobs_move(site):
    job = site.daemon.submit("sleep 1000", gpus=2, name="mover")
    (before,) = site.daemon.until(job, "RUNNING").nodes
    page = site.log_in("operator")
    go(page, "Cluster")
    until(page, f"[...rotaLive.board.owners].includes({job})")
    places = page.evaluate("[...rotaLive.board.owners]")
    go(page, "Nodes")
    row = page.locator("tr", has_text=before)
    row.get_by_role("button", name="Drain and stop jobs").click()
    page.get_by_role("button", name="Stop them").click()
    row.locator(".chip", has_text="Drained").wait_for()
    moved = until(
        page,
        f"(now => now.includes({job}) && now.join() !== '{','.join(map(str, places))}' && now)"
        "([...rotaLive.board.owners])",
    )
    assert sorted(moved) == sorted(places)
    assert [each == int(job) for each in moved] == [each != int(job) for each in places]
    other = page.locator("tbody tr", has_not_text=before)
    other.get_by_role("link", name=job).wait_for()
    page.get_by_text(f"{before} closed").first.wait_for()
    row.get_by_role("button", name="Use again").click()
    row.get_by_text("Up").wait_for()
    go(page, "Timeline")
    until(page, "window.rotaLanes?.bars.length >= 2")
    go(page, "Log")
    acts = page.locator("tbody tr", has_text=f"undrain node {before}")
    assert "operator" in acts.first.inner_text()
    page.get_by_role("button", name="Check all lines").click()
    page.get_by_text("each follows from the one before it").wait_for()
    page.get_by_role("button", name="Nodes").click()
    page.get_by_role("cell", name="node opened").first.wait_for()


@pytest.mark.parametrize("role", PEOPLE)
def test_everybody_sees_and_can_do_what_the_api_allows(site, role):
    own = site.people["user"].submit({"run": "sleep 1000", "name": "theirs", "hold": True}).id
    page = site.log_in(role)
    rank = PEOPLE.index(role)
    wanted = {view for view, least in VIEWS.items() if PEOPLE.index(least) <= rank}
    assert set(page.get_by_role("navigation").get_by_role("link").all_inner_texts()) == wanted
    if role != "admin":
        page.goto(site.url + "/#/people")
        page.get_by_text("it takes the role admin").wait_for()

    page.goto(f"{site.url}/#/jobs/{own}")
    page.get_by_role("heading", name="theirs").wait_for()
    page.locator(".facts div").first.wait_for()
    buttons = set(page.locator(".heading .actions > *").all_inner_texts())
    acts = {"Release", "Cancel"}
    clones = {"Clone"} if role in ("user", "admin") else set()  # they see what was submitted
    assert buttons == (acts | clones if role != "viewer" else set())
    private = page.get_by_text("private to its owner and operators").count()
    assert private == (1 if role == "viewer" else 0)

    other = site.people["operator"].submit({"run": "true", "name": "hidden", "hold": True}).id
    page.goto(f"{site.url}/#/jobs/{other}")
    if role == "user":
        page.get_by_text("there is no job").wait_for()
    else:
        page.get_by_role("heading", name="hidden").wait_for()
    page.goto(site.url + "/#/nodes")
    page.get_by_role("cell", name="n0", exact=True).wait_for()
    assert page.get_by_role("button", name="Drain").count() == (2 if rank >= 2 else 0)
    page.goto(site.url + "/#/policy")
    page.get_by_text("A decision").wait_for()
    assert page.get_by_role("button", name="Compare").count() == (1 if rank >= 2 else 0)

    # and nothing that the page hides can be had by asking all the same
    status = page.evaluate(
        "async () => (await fetch('/api/v1/nodes/n0/undrain', {method: 'POST'})).status"
    )
    assert status == (200 if rank >= 2 else 403)


def test_a_page_of_another_origin_gets_nothing(site):
    page = site.log_in("admin")
    cookies = page.context.cookies()
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]
    assert page.evaluate("document.cookie") == ""
    assert "code=" not in page.url


def test_the_page_lives_on_when_it_or_the_daemon_is_started_again(site):
    daemon = site.daemon
    job = daemon.submit("sleep 1000", gpus=1, name="stayer")
    page = site.log_in("admin")
    page.goto(f"{site.url}/#/jobs/{job}")
    chip(page, "Running")
    with page.expect_response(lambda answer: answer.url.endswith("/web/keys")) as kept:
        page.reload()
    assert kept.value.status == 204, "the daemon knows the browser's key"
    chip(page, "Running")
    page.evaluate("window.kept = true")

    daemon.kill()
    page.get_by_text("Reconnecting").wait_for()
    daemon.start()
    site.people["admin"] = daemon.client
    page.get_by_text("Live", exact=True).wait_for()
    daemon.client.cancel(job)
    chip(page, "Cancelled")
    assert page.evaluate("window.kept"), "it was not loaded again"

    page.get_by_role("button", name="Log out").click()
    page.get_by_text("rota web", exact=True).wait_for()
    page.reload()
    page.get_by_text("rota web", exact=True).wait_for()


def test_the_present_queue_under_another_policy(site):
    for _ in range(4):
        site.daemon.submit("sleep 1000", gpus=2, nodes=1, estimate=600)
    page = site.log_in("operator")
    go(page, "Policy")
    page.get_by_label("Policy", exact=True).select_option("srtf")
    page.get_by_label("More nodes").fill("2")
    page.get_by_label("GPUs of each").fill("2")
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("2 jobs wait now").wait_for()
    row = page.locator("tr", has_text="Longest wait").locator("td").all_inner_texts()
    assert row[2] == "0 s", "with two nodes more nobody waits"
    assert row[1] != "0 s"
    assert site.daemon.client.status()["policy"] == "fifo-skip", "nothing was changed"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out(site, scheme):
    """Find problems that axe calls serious or critical: in all views, in both schemes."""
    axe = tool("axe-core/axe.min.js").read_text()
    job = site.daemon.submit("printf '\\033[31mred\\033[0m'; sleep 1000", gpus=2, queue="vision")
    waits = [site.daemon.submit("true", gpus=2, queue="language") for _ in range(2)][1]
    site.daemon.until(job, "RUNNING")
    page = site.log_in("admin", color_scheme=scheme)
    found = {}
    for view in [*(name.lower() for name in VIEWS), f"jobs/{job}", f"jobs/{waits}"]:
        path = {"timeline": "lanes", "log": "audit"}.get(view, view)
        page.goto(f"{site.url}/#/{path}")
        page.get_by_role("heading", level=1).first.wait_for()
        until(page, "rotaLive.status === 'live'")
        page.evaluate(axe)
        found[view] = page.evaluate(AXE)
    assert {view: told for view, told in found.items() if told} == {}


def test_a_chart_has_a_name_before_its_numbers_are_there(site):
    page = site.log_in("admin")
    page.route("**/lanes*", lambda route: None)  # never answered
    for view in ("overview", "queues"):
        page.goto(f"{site.url}/#/{view}")
        page.get_by_role("img", name="GPUs in use by queue; last values: none").wait_for()


def test_everything_works_on_a_phone_and_with_the_keyboard(site):
    job = site.daemon.submit("sleep 1000", gpus=1, name="small")
    page = site.log_in("admin", viewport={"width": 390, "height": 844})
    for view in VIEWS:
        go(page, view)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, f"{view} is {wide} pixels wide"
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    page.get_by_role("link", name="small").wait_for()
    page.keyboard.press("/")
    page.keyboard.type(job)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="small").wait_for()
    page.goto(site.url + "/#/cluster")
    until(page, "window.rotaMap?.nodes.length === 2")
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    assert "GPU 0" in page.locator(".tip:not([hidden])").inner_text()


def test_a_long_list_has_only_the_rows_that_are_seen(site):
    files = [{"run": "true", "name": f"job-{n:04}", "hold": True} for n in range(1_000)]
    site.daemon.client.submit_many(files)
    page = site.log_in("admin")

    def of_the_list(answer):  # the overview asks for jobs, too
        asked = urlsplit(answer.url)
        return asked.path.endswith("/find/jobs") and parse_qs(asked.query).get("sort") == ["name"]

    with page.expect_response(of_the_list) as first:
        page.goto(site.url + "/#/jobs?sort=name&rising=true")
    page.get_by_role("link", name="job-0000").wait_for()
    told = first.value.json()
    assert (told["total"] >= 1_000, len(told["jobs"])) == (True, 100), "a piece, however many"
    assert len(first.value.body()) < 100_000
    total = page.get_by_text("jobs", exact=False).locator("xpath=self::p").first.inner_text()
    assert int(total.split()[0].replace(",", "")) >= 1_000
    assert page.locator(".rows .row").count() < 60
    page.evaluate("document.querySelector('.view').scrollTop = 500 * 42")
    page.get_by_role("link", name="job-0510").wait_for()
    assert page.locator(".rows .row").count() < 60
    page.get_by_label("Search in").fill("job-0777")
    until(page, "document.querySelectorAll('.rows a').length === 1")
    assert "search=job-0777" in page.url, "it can be sent to somebody"
    page.reload()
    page.get_by_role("link", name="job-0777").wait_for()
    assert json.loads(page.evaluate("JSON.stringify(rotaLive.messages)")) >= 0
