"""Everyone enters."""

from policy_runs import bare, engine, finish, job, rows, runs_of
from rota.core.log import Record
from rota.policies.admission.accept_all import AcceptAll
from rota.policies.fifo_skip import FifoSkip


def test_nobody_is_held():
    log = finish(
        engine(FifoSkip(), [job(str(i), 0, 1, 5) for i in range(9)], admission=AcceptAll())
    )
    assert rows(log, Record.HELD) == []
    assert len(runs_of(log)) == 9


def test_the_engine_need_not_ask():
    assert AcceptAll.trivial
    assert AcceptAll().consider(bare(), None) is None
