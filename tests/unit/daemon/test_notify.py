"""Messages to owners: which, to whom, how often, and never more than is bearable."""

import msgspec
import pytest

from receivers import WebReceiver, receiving
from rota.core.errors import InputError, NotFoundError
from rota.daemon.notify import (
    MOST_PENDING,
    MOST_TRIES,
    Notifier,
    NotifyState,
    allowed,
    check_budget_targets,
)
from rota.daemon.settings import NotifySettings, Webhook
from rota.jobfile.model import JobFile
from rota.wire import Event, Forecast, JobInfo

SETTINGS = NotifySettings(
    webhooks={"chat": Webhook(url="http://127.0.0.1:9/")},
    allow=("https://hooks.example.org/teams", "http://10.0.0.1:8080", "mailto:*@example.org"),
    relay="mail:25",
)


class Facts:
    id = "s1"
    log_number = 7

    def __init__(self):
        self.kept = {}
        self.writes = 0

    def fact(self, name, first):
        return self.kept.setdefault(name, first)

    def change_fact(self, name, value):
        self.writes += 1
        self.kept[name] = value

    @property
    def state(self):
        return msgspec.json.decode(self.kept["notify"], type=NotifyState)


class Source:
    """A daemon with jobs that want to be told of everything."""

    def __init__(self):
        self.rows = []
        self.waiting = []
        self.starts_at = None
        self.file = JobFile(run="x", notify=("chat",))

    def add(self, kind, job="1", other=-1, text=None):
        number = 8 + len(self.rows)
        self.rows.append(
            Event(number=number, time_s=0.0, at=100.0, event=kind, job=job, ref=-1, other=other,
                  value=0.0, text=text)
        )  # fmt: skip

    def events(self, after, limit):
        return [row for row in self.rows if row.number > after][:limit]

    def job(self, job, actor):
        if job == "99":
            raise NotFoundError("there is no job 99")
        return JobInfo(id=job, name="n", user="u", queue="", state="RUNNING", gpus=1,
                       submitted_at=0.0, file=self.file)  # fmt: skip

    def jobs(self, actor, *, states=()):
        return [self.job(job, actor) for job in self.waiting]

    def when(self, job, actor, *, runs=20):
        return Forecast(id=job, state="PENDING", starts_at=self.starts_at, earliest_at=None,
                        latest_at=None, runs=runs, never=0, text="", assumptions={})  # fmt: skip


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def world():
    source, facts, clock = Source(), Facts(), Clock()
    with receiving(WebReceiver) as web:
        settings = NotifySettings(webhooks={"chat": Webhook(url=web.url)}, budgets=("chat",))

        def make():
            return Notifier(source, facts, settings, clock)

        yield source, facts, clock, web, make


@pytest.mark.parametrize(
    ("target", "good"),
    [
        ("chat", True), ("other", False),
        ("https://hooks.example.org/teams", True), ("https://hooks.example.org/teams/a", True),
        ("https://hooks.example.org/teamsters", False), ("https://hooks.example.org/", False),
        ("http://hooks.example.org/teams", False), ("https://hooks.example.org:8443/teams", False),
        ("https://hooks.example.org/teams/../admin", False),
        ("https://hooks.example.org/teams/%2e%2e/admin", False),
        ("https://me@hooks.example.org/teams", False),
        ("http://[", False), ("https://hooks.example.org\u2100/teams", False),
        ("mailto:eve@example.com,ann@example.org", False),
        ("mailto:eve@example.com ann@example.org", False),
        ("mailto:<eve@example.com>;@example.org", False), ("mailto:@example.org", False),
        ("https://hooks.example.org.evil.example/teams", False),
        ("http://10.0.0.1:8080/any", True), ("http://10.0.0.1/any", False),
        ("mailto:ann@example.org", True), ("mailto:ann@example.com", False),
        ("file:///etc/passwd", False), ("", False),
    ],
)  # fmt: skip
def test_only_configured_targets_are_allowed(target, good):
    assert allowed(target, SETTINGS) is good


def test_rows_become_messages_once_and_old_ones_are_not_told(world):
    source, facts, _, web, make = world
    notifier = make()
    for kind in ("submit", "run", "stop", "done"):
        source.add(kind)
    source.add("stop", other=-2)  # on request
    source.add("done", job="99")  # which nobody knows any more
    notifier.step()
    assert [each["event"] for each in web.contents()] == ["start", "preempt", "end"]
    notifier.step()
    make().step()  # after a restart
    assert len(web.got) == 3
    assert facts.state == NotifyState(after=13)


def test_a_message_is_kept_until_it_is_taken_and_then_given_up(world):
    source, facts, clock, web, make = world
    source.add("done")
    web.answers[:] = [503] * 99
    notifier = make()
    notifier.step()
    notifier.step()  # not before its pause is over
    assert len(web.got) == 1
    assert facts.state.pending[0].tries == 1
    pauses = []
    for _ in range(MOST_TRIES - 1):
        again = facts.state.pending[0].next_unix
        pauses.append(again - clock.now)
        clock.now = again
        notifier = make()  # as after a kill
        notifier.step()
    assert pauses == [5.0 * 2**n for n in range(MOST_TRIES - 1)]
    assert len(web.got) == MOST_TRIES
    assert facts.state.pending == []
    assert len({headers["Rota-Delivery"] for headers, *_ in web.got}) == 1


def test_an_end_waits_for_its_start_and_others_do_not(world):
    source, facts, clock, web, make = world
    web.answers[:] = [503]
    notifier = make()
    source.add("run")
    source.add("done")
    source.add("done", job="2")
    notifier.step()
    assert [(each["job"], each["event"]) for each in web.contents()] == [("2", "end")]
    clock.now = facts.state.pending[0].next_unix
    notifier.step()
    assert [each["event"] for each in web.contents(job="1")] == ["start", "end"]


def test_of_too_many_the_oldest_go(world):
    source, facts, _, web, make = world
    web.answers[:] = [503] * 10**6
    notifier = make()
    notifier._deliver = lambda: None  # nobody takes them
    for _ in range(MOST_PENDING + 5):
        source.add("done")
    notifier.step()
    assert len(facts.state.pending) == MOST_PENDING
    assert facts.state.pending[0].id == "s1-13-0"


def test_who_starts_soon_is_told_once(world):
    source, facts, clock, web, make = world
    notifier = make()
    source.waiting, source.starts_at = ["1"], clock.now + 3600
    notifier.step()
    assert web.contents() == []
    clock.now += 61
    source.starts_at = clock.now + 599
    notifier.step()
    clock.now += 61
    make().step()
    assert [each["event"] for each in web.contents()] == ["soon"]
    assert facts.state.told_soon == ["1"]


def test_a_target_that_is_not_allowed_any_more_gets_nothing(world):
    source, _, _, web, make = world
    source.file = JobFile(run="x", notify=(web.url,))
    source.add("done")
    make().step()
    assert web.got == []


def test_who_is_configured_hears_of_budgets(world):
    source, facts, _, web, make = world
    make()
    source.add("note", job=None, text="budget: queue 'vision' has used 80 of 100 GPU-hours")
    source.add("note", job=None, text="token 'budget: ' created by olga")
    make().step()
    make().step()
    (told,) = web.contents()
    assert (told["event"], told["text"]) == (
        "budget", "queue 'vision' has used 80 of 100 GPU-hours",
    )  # fmt: skip
    assert "job" not in told
    assert facts.state.pending == []


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (("nosuch",), "notify.budgets 'nosuch': messages go only where the configuration says"),
        (("mailto:a@b.org",), "no mail relay is configured: set notify.relay"),
    ],
)
def test_who_could_not_be_told_of_budgets_is_refused(targets, said):
    settings = NotifySettings(allow=("mailto:*@b.org",), budgets=targets)
    with pytest.raises(InputError) as error:
        check_budget_targets(settings)
    assert said in str(error.value)
