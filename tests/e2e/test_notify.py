"""Owners are told without asking: by a real web server and a real mail relay."""

import hmac
import json
import re

import pytest

from agents_net import eventually
from daemon_process import serving
from receivers import MailReceiver, WebReceiver, receiving

SECRET = "a key that nobody may see"  # noqa: S105 - of this test


@pytest.fixture(scope="module")
def web():
    with receiving(WebReceiver) as made:
        yield made


@pytest.fixture(scope="module")
def mail():
    with receiving(MailReceiver) as made:
        yield made


@pytest.fixture(scope="module")
def config(tmp_path_factory, web, mail):
    folder = tmp_path_factory.mktemp("notify")
    (folder / "secret").write_text(SECRET)
    path = folder / "rota.yaml"
    path.write_text(
        "policy: las:limits=1\n"
        "notify:\n"
        f"  webhooks: {{chat: {{url: '{web.url}/hook', secret_file: {folder}/secret}}}}\n"
        f"  allow: ['{web.url}/teams/', 'mailto:*@example.org']\n"
        f"  relay: {mail.address}\n"
        "  mail_from: rota@example.org\n"
    )
    return path


@pytest.fixture(scope="module")
def common_daemon(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("notify-daemon")
    with serving(folder, "--nodes", "1x2", "--config", config) as daemon:
        yield daemon


def submitted(daemon, *args):
    return daemon.rota("submit", *args).stdout.split()[0]


def test_start_and_end_come_signed_with_an_id(daemon, web):
    job = submitted(daemon, "--name", "told", "--notify", "chat", "--", "true")
    found = eventually(lambda: len(web.contents(name="told")) == 2 and web.contents(name="told"))
    assert {each["job"] for each in found} == {job}
    assert [each["event"] for each in found] == ["start", "end"]
    assert re.fullmatch(
        rf"job {job} \(told\) succeeded: waited .*, ran .* on 1 GPU", found[-1]["text"]
    )
    assert len({each["id"] for each in found}) == 2
    headers, body = next(
        (headers, body) for headers, body, path, _ in web.got if json.loads(body).get("job") == job
    )
    digest = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    assert headers["Rota-Signature"] == f"sha256={digest}"
    assert headers["Rota-Delivery"] == json.loads(body)["id"]
    assert SECRET not in daemon.log()


def test_failure_by_mail_and_only_what_was_asked_for(daemon, mail, web):
    job = submitted(
        daemon, "--name", "bad", "--notify", "mailto:ann@example.org", "--notify",
        f"{web.url}/teams/a", "--notify-on", "fail", "--", "bash", "-c", "exit 3",
    )  # fmt: skip
    sender, to, text = eventually(
        lambda: next((m for m in mail.got if f"job {job} " in m[2]), None)
    )
    assert (sender, to) == ("rota@example.org", ["ann@example.org"])
    assert f"Subject: [rota] job {job} bad has failed" in text
    assert f"job {job} (bad) failed (exit code 3): waited" in text
    (told,) = eventually(lambda: web.contents(name="bad"))
    assert (told["event"], told["state"]) == ("fail", "FAILED")


def test_preemption_and_the_next_start_soon(daemon, web, tmp_path):
    """The second job displaces the first, which will go on when that has ended."""
    gate = tmp_path / "gate"
    first = submitted(
        daemon, "--gpus", "2", "--notify", "chat", "--set", "estimate=60", "--", "sleep", "1000"
    )
    eventually(lambda: web.contents(job=first, event="start"))
    second = submitted(
        daemon, "--gpus", "2", "--set", "estimate=60", "--", "bash", "-c",
        f"until test -e {gate}; do sleep 0.05; done",
    )  # fmt: skip
    eventually(lambda: web.contents(job=first, event="preempt"), every_s=0.1)
    gate.touch()
    daemon.until(second, "SUCCEEDED")


def test_what_is_refused_or_fails_is_tried_again_also_after_a_kill(daemons, config, web):
    daemon = daemons("--nodes", "1x1", "--config", config)
    web.answers[:] = [500, 302]
    job = daemon.submit("true", name="again", notify=["chat"], notify_on=["end"])
    eventually(lambda: not web.answers, every_s=0.05)  # refused, and sent elsewhere: both are none
    daemon.kill()
    daemon.start()
    (told,) = eventually(lambda: web.contents(name="again"), every_s=0.1)
    assert (told["job"], told["event"]) == (job, "end")
    ids = {json.loads(body)["id"] for _, body, path, _ in web.got if b'"again"' in body}
    assert ids == {told["id"]}
    assert not any(path == "/elsewhere" for _, _, path, _ in web.got)


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest", "mailto:x@evil.example", "nobody", "file:///etc/passwd"],
)
def test_messages_go_nowhere_else(daemon, target):
    done = daemon.rota("submit", "--notify", target, "--", "true", check=False)
    assert done.returncode != 0
    assert "messages go only where the configuration says" in done.stderr


def test_watch_job_prints_what_happens_and_a_summary(daemon, tmp_path):
    job = submitted(daemon, "--name", "seen", "--hold", "--", "true")
    daemon.rota("release", job)
    done = daemon.rota("watch-job", job, "--interval", "0.05")
    lines = done.stdout.splitlines()
    assert lines[-2].endswith("succeeded")
    assert re.fullmatch(rf"job {job} \(seen\) succeeded: waited .*, ran .* on 1 GPU", lines[-1])


def test_operators_hear_of_budgets(daemons, tmp_path, web, mail):
    """A job that runs uses its queue's budget up; also if the daemon was killed meanwhile."""
    path = tmp_path / "budget.yaml"
    path.write_text(
        "admission: budget:of=vision:0.001,per=month\n"
        "queues: {vision: {}}\n"
        "notify:\n"
        f"  webhooks: {{ops: {{url: '{web.url}/ops'}}}}\n"
        "  allow: ['mailto:*@example.org']\n"
        f"  relay: {mail.address}\n"
        "  budgets: [ops, 'mailto:ops@example.org']\n"
    )
    daemon = daemons("--nodes", "1x1", "--config", path)
    run = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    job = daemon.submit(run, queue="vision")
    daemon.until(job, "RUNNING")
    daemon.kill()
    daemon.start()
    (told, *_) = eventually(lambda: web.contents(event="budget"))
    assert re.match(r"queue 'vision' has used .* of 0\.001 GPU-hours of its budget", told["text"])
    sent = eventually(lambda: next((m for m in mail.got if "[rota] queue 'vision'" in m[2]), None))
    assert "ops@example.org" in str(sent)
    assert "budget" in daemon.rota("audit", check=False).stdout
    (tmp_path / "go").touch()
    daemon.until(job, "SUCCEEDED")
