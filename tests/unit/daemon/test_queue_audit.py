"""What an audit of the queues finds on a living cluster."""

from daemon_slow import Slow, state
from rota.daemon.settings import Permissions, Queue, Settings


def kinds(daemon):
    return {(one.kind, one.subject): one for one in daemon.audit()}


def test_everything_is_found_with_numbers_and_a_remedy(running, alice, bob, file):
    queues = [Queue("own", quota=4), Queue("guest", quota=2), Queue("lazy", quota=2, lend=0)]
    driver = Slow()
    with running(nodes=(2, 4), policy="fifo-skip", queues=queues, driver=driver, patient=True) as d:
        assert d.audit() == []
        d.submit([file(4, queue="guest"), file(3, queue="guest")], bob)
        for job in "12":
            state(d, bob, job, "RUNNING")
        d.submit([file(4, queue="own"), file(9, queue="own")], alice)
        found = kinds(d)
        starved = found["starved", "own"]
        assert starved.numbers == {
            "quota": 4.0, "used": 0.0, "asked": 4.0, "unmet": 4.0, "borrowed_by_others": 5.0,
        }  # fmt: skip
        assert "guest" in starved.text
        assert "borrow" in starved.remedy
        idle = found["idle-quota", "lazy"]
        assert (idle.numbers["idle"], "raise its lend by 2" in idle.remedy) == (2.0, True)
        assert "asks for 9 GPUs" in found["never", "4"].text
        assert set(found) == {("starved", "own"), ("idle-quota", "lazy"), ("never", "4")}
        driver.let_go()


def test_who_preempts_and_who_is_at_a_limit(running, alice, bob, file):
    limited = Settings(permissions=Permissions(max_jobs=5))
    queues = [Queue("small", limit=1), Queue("other")]
    with running(
        nodes=(1, 4), policy="smallest", admission="quota", queues=queues, settings=limited
    ) as d:
        for _ in range(3):
            d.submit([file(4, queue="other")], bob)
            state(d, bob, d.jobs(bob)[-1].id, "RUNNING")
            d.submit([file(1, queue="other", lasts=0.2)], alice)
            state(d, alice, d.jobs(alice)[-1].id, "SUCCEEDED")
            d.cancel(d.jobs(bob)[-1].id, bob)
        preempts = kinds(d)["preempts", "alice"]
        assert preempts.numbers == {"preemptions": 3, "share": 1.0}
        d.submit([file(1, queue="small") for _ in range(5)], alice)
        found = kinds(d)
        assert found["limit", "alice"].numbers == {"jobs": 5, "max_jobs": 5}
        assert found["limit", "small"].numbers["jobs"] == 4
