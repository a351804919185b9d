"""Notifications: rows of the event log become messages to webhooks and mail addresses.

    event log -- after a number that is kept --> messages -- kept --> webhook, mail

A thread of its own reads the stored log: decisions never wait for it. Which rows were read and
which messages are not delivered yet is one fact of the store, so that nothing is lost with the
process: a message is sent at least once, and always with the same id. It is tried again after a
while, and given up after some tries; of too many the oldest are dropped, which is logged. Messages
go only where the configuration says: to targets by name, or to addresses on its list.
"""

import hashlib
import hmac
import logging
import re
import smtplib
import time
from collections.abc import Callable, Iterable, Sequence
from email.message import EmailMessage
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from rota.core.errors import InputError, RotaError
from rota.daemon.budgets import MARK
from rota.daemon.periodic import PeriodicThread
from rota.daemon.settings import NotifySettings
from rota.jobfile.check import NOTIFY_EVENTS
from rota.jobfile.model import JobFile
from rota.wire import ADMIN, ENDED, Actor, Event, Forecast, JobInfo

log = logging.getLogger("rota.notify")

FACT = "notify"
MAILTO = "mailto:"
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+", re.ASCII)
"""One address: a list of them would be as good as what stands last in it."""
PAGE = 500  # rows at a time
MOST_PENDING = 1000  # messages
MOST_TRIES = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 3600.0
TIMEOUT_S = 10.0  # of one delivery
LOOK_S = 1.0
SOON_S, SOON_EVERY_S, MOST_FORECASTS, RUNS = 600.0, 60.0, 20, 10
OF_ROWS = {
    "run": "start", "done": "end", "failed": "fail", "timeout": "fail", "rejected": "fail",
    "cancelled": "end", "stop": "preempt",
}  # fmt: skip
WORDS = {
    "start": "has started", "end": "is over", "fail": "has failed", "preempt": "was preempted",
    "soon": "will start in about 10 minutes",
}  # fmt: skip
BY_REQUEST = -2  # in STOP rows: people wanted it


class Delivery(msgspec.Struct):
    """A message that is on its way."""

    id: str
    target: str
    event: str
    job: str
    at: float
    text: str = ""  # of what is not about a job
    tries: int = 0
    next_unix: float = 0.0


class NotifyState(msgspec.Struct):
    """What is kept: rows up to here were read; messages; jobs that were told of their start."""

    after: int
    pending: list[Delivery] = []
    told_soon: list[str] = []


class NotifySource(Protocol):
    """What is asked of the daemon; it answers from any thread."""

    def events(self, after: int, limit: int) -> list[Event]:
        """Rows of the log."""
        ...

    def job(self, job: str, actor: Actor) -> JobInfo:
        """One job, with what was submitted."""
        ...

    def jobs(self, actor: Actor, *, states: Sequence[str] = ()) -> list[JobInfo]:
        """Jobs in these states."""
        ...

    def when(self, job: str, actor: Actor, *, runs: int = 20) -> Forecast:
        """When it will start."""
        ...


class NotifyFacts(Protocol):
    """Where the state is kept."""

    id: str
    log_number: int

    def fact(self, name: str, first: str) -> str:
        """What is kept under a name, or what is kept from now on."""
        ...

    def change_fact(self, name: str, value: str) -> None:
        """Replace it."""
        ...


def refuse_targets(jobs: Iterable[JobFile], settings: NotifySettings) -> None:
    """Raise for targets that the configuration does not allow."""
    for job in jobs:
        for target in job.notify:
            _check_target(f"notify {target[:60]!r}", target, settings)


def check_budget_targets(settings: NotifySettings) -> None:
    """Raise for those who could not be told of budgets."""
    for target in settings.budgets:
        _check_target(f"notify.budgets {target[:60]!r}", target, settings)


def _check_target(what: str, target: str, settings: NotifySettings) -> None:
    if not allowed(target, settings):
        known = ", ".join([*settings.webhooks, *settings.allow]) or "none"
        raise InputError(
            f"{what}: messages go only where the configuration says "
            f"(notify.webhooks, notify.allow): {known}"
        )
    if target.startswith(MAILTO) and not settings.relay:
        raise InputError(f"{what}: no mail relay is configured: set notify.relay")


def allowed(target: str, settings: NotifySettings) -> bool:
    """Is this a target of the configuration, or on its list?"""
    if target in settings.webhooks:
        return True
    if target.startswith(MAILTO):
        alone = ADDRESS.fullmatch(target.removeprefix(MAILTO))
        return bool(alone) and any(fnmatchcase(target, pattern) for pattern in settings.allow)
    try:
        parts = urlsplit(target)
    except ValueError:  # `http://[`
        return False
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or "\\" in target:
        return False
    for pattern in settings.allow:  # an origin with the beginning of a path
        wanted = urlsplit(pattern)
        same = (wanted.scheme, wanted.netloc) == (parts.scheme, parts.netloc)
        path = wanted.path.rstrip("/")
        if same and ".." not in unquote(parts.path) and (parts.path + "/").startswith(path + "/"):
            return True
    return False


class Notifier:
    """Reads the log, keeps messages, and delivers them."""

    def __init__(
        self,
        source: NotifySource,
        store: NotifyFacts,
        settings: NotifySettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._store, self._settings, self._clock = source, store, settings, clock
        first = NotifyState(store.log_number)
        text = store.fact(FACT, msgspec.json.encode(first).decode())
        self.state = msgspec.json.decode(text, type=NotifyState)
        self._actor = Actor("notify", ADMIN)
        self._next_soon_unix = 0.0
        self._wanted: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._thread = PeriodicThread("notify", self.step, LOOK_S)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the message that is on its way."""
        self._thread.stop()

    def step(self) -> None:
        """Read what is new, and deliver what is due."""
        self._read()
        if self._clock() >= self._next_soon_unix:
            self._next_soon_unix = self._clock() + SOON_EVERY_S
            self._look_ahead()
        self._deliver()

    # --- from rows to messages --------------------------------------------------------------------

    def _read(self) -> None:
        while rows := self._source.events(self.state.after, PAGE):
            found = [
                delivery
                for row in rows
                if row.job is not None
                and row.event in OF_ROWS
                and not (row.event == "stop" and row.other == BY_REQUEST)
                for delivery in self._messages(OF_ROWS[row.event], row.job, str(row.number), row.at)
            ]
            found += [each for row in rows for each in self._of_budgets(row)]
            self.state.after = rows[-1].number
            self._add(found)
            self._keep()

    def _messages(self, event: str, job: str, number: str, at: float) -> list[Delivery]:
        targets, events = self._wishes(job)
        if event not in events:
            return []
        return [
            Delivery(f"{self._store.id}-{number}-{place}", target, event, job, at)
            for place, target in enumerate(targets)
        ]

    def _of_budgets(self, row: Event) -> list[Delivery]:
        """A line of the log that says how much of a budget is used."""
        text = row.text or ""
        if row.job is not None or not text.startswith(MARK):
            return []
        return [
            Delivery(
                f"{self._store.id}-{row.number}-{place}", target, "budget", "", row.at,
                text.removeprefix(MARK),
            )
            for place, target in enumerate(self._settings.budgets)
        ]  # fmt: skip

    def _wishes(self, job: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """To whom messages about a job go, and about what."""
        if job not in self._wanted:
            try:
                file = self._source.job(job, self._actor).file
            except RotaError:  # a task, or a job that was forgotten
                file = None
            if len(self._wanted) > MOST_PENDING:
                self._wanted.clear()
            self._wanted[job] = (
                ((), ()) if file is None else (file.notify, file.notify_on or NOTIFY_EVENTS)
            )
        return self._wanted[job]

    def _look_ahead(self) -> None:
        """Tell those who wait and will start soon."""
        waiting = [
            job.id
            for job in self._source.jobs(self._actor, states=("PENDING",))
            if "soon" in self._wishes(job.id)[1] and self._wishes(job.id)[0]
        ]
        told = [job for job in self.state.told_soon if job in waiting]
        for job in [job for job in waiting if job not in told][:MOST_FORECASTS]:
            starts_at = self._source.when(job, self._actor, runs=RUNS).starts_at
            now = self._clock()
            if starts_at is not None and starts_at - now <= SOON_S:
                told.append(job)
                self._add(self._messages("soon", job, f"soon-{job}", now))
        if told != self.state.told_soon or waiting:
            self.state.told_soon = told
            self._keep()

    def _add(self, found: list[Delivery]) -> None:
        pending = [*self.state.pending, *found]
        if len(pending) > MOST_PENDING:
            log.warning("notify.dropped", extra={"messages": len(pending) - MOST_PENDING})
        self.state.pending = pending[-MOST_PENDING:]

    def _keep(self) -> None:
        self._store.change_fact(FACT, msgspec.json.encode(self.state).decode())

    # --- delivery ---------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """What is due; of a job each target hears in order, so an end waits for its start."""
        held_back: set[tuple[str, str]] = set()
        for delivery in list(self.state.pending):
            if self._thread.stopped:
                return
            line = (delivery.job, delivery.target)
            if line in held_back or delivery.next_unix > self._clock():
                held_back.add(line)
                continue
            why = self._send(delivery)
            delivery.tries += 1
            if not why or delivery.tries >= MOST_TRIES:
                self.state.pending.remove(delivery)
            else:
                held_back.add(line)
            if why:
                pause_s = min(FIRST_PAUSE_S * 2 ** (delivery.tries - 1), LONGEST_PAUSE_S)
                delivery.next_unix = self._clock() + pause_s
                given_up = delivery.tries >= MOST_TRIES
                log.warning(
                    "notify.given_up" if given_up else "notify.again",
                    extra={"delivery": delivery.id, "job": delivery.job, "why": why},
                )
            self._keep()

    def _send(self, delivery: Delivery) -> str:
        """Deliver it; why that was not possible, without anything secret."""
        if not allowed(delivery.target, self._settings):
            return "its target is not allowed any more"
        if delivery.job:
            try:
                job = self._source.job(delivery.job, self._actor)
            except RotaError as error:
                return str(error)
            content = content_of(delivery, job)
        else:
            content = {
                "id": delivery.id, "event": delivery.event, "at": delivery.at,
                "text": delivery.text,
            }  # fmt: skip
        try:
            if delivery.target.startswith(MAILTO):
                send_mail(delivery.target.removeprefix(MAILTO), content, self._settings)
                return ""
            return self._post(delivery, content)
        except (OSError, smtplib.SMTPException) as error:
            return f"{type(error).__name__}"

    def _post(self, delivery: Delivery, content: dict[str, Any]) -> str:
        import httpx2

        known = self._settings.webhooks.get(delivery.target)
        url = delivery.target if known is None else known.url
        body = msgspec.json.encode(content)
        headers = {"Content-Type": "application/json", "Rota-Delivery": delivery.id}
        if known is not None and known.secret_file:
            secret = Path(known.secret_file).read_bytes().strip()
            headers["Rota-Signature"] = "sha256=" + hmac.new(secret, body, "sha256").hexdigest()
        try:
            with (
                httpx2.Client(follow_redirects=False, trust_env=False, timeout=TIMEOUT_S) as client,
                client.stream("POST", url, content=body, headers=headers) as answer,
            ):
                good = 200 <= answer.status_code < 300  # noqa: PLR2004 - what HTTP calls success
                return "" if good else f"status {answer.status_code}"
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return type(error).__name__


def content_of(delivery: Delivery, job: JobInfo) -> dict[str, Any]:
    """What a webhook gets; mail has its `text`."""
    name = f"job {job.id}" + (f" ({job.name})" if job.name else "")
    text = f"{name} {WORDS[delivery.event]}"
    if delivery.event in ("end", "fail"):
        text = job.summary() if job.state in ENDED else text
    return {
        "id": delivery.id, "event": delivery.event, "at": delivery.at, "job": job.id,
        "name": job.name, "user": job.user, "queue": job.queue, "state": job.state,
        "message": job.message, "array": job.array, "task": job.task, "text": text,
    }  # fmt: skip


def send_mail(address: str, content: dict[str, Any], settings: NotifySettings) -> None:
    """Hand a message to the relay."""
    mail = EmailMessage()
    title = content["text"]
    if "job" in content:
        title = f"job {content['job']} {content['name']} {WORDS[content['event']]}"
    mail["Subject"] = f"[rota] {' '.join(title.split())}"
    mail["From"], mail["To"] = settings.mail_from, address
    digest = hashlib.sha256(content["id"].encode()).hexdigest()[:32]
    mail["Message-ID"] = f"<{digest}@rota>"
    mail["Rota-Delivery"] = content["id"]
    mail.set_content(f"{content['text']}\n")
    host, _, port = settings.relay.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=TIMEOUT_S) as relay:
        if settings.relay_tls:
            import ssl

            relay.starttls(context=ssl.create_default_context())
        if settings.relay_user:
            relay.login(settings.relay_user, Path(settings.relay_password_file).read_text().strip())
        relay.send_message(mail)
