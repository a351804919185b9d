"""Jobs that are sent from one place to the next before they have left the first."""

import numpy as np

from rota.metrics import fold_ledger, read_history

INF = float("inf")


def test_a_job_that_is_moved_again_while_it_stops_keeps_its_first_place(script):
    script.submit(0, 2).start(0, 2)
    script.at(10).move(0, 1, since=INF).at(12).move(0, 4, since=INF).at(13).move(0, 3, since=INF)
    script.at(15).row("stopped", 0).start(0, 3, since=-1).at(16).row("run", 0)
    script.at(20).row("done", 0)
    log = script.end()
    history = read_history(log)
    held = dict(zip(history.from_s.tolist(), history.held.tolist(), strict=True))
    assert [held[t] for t in (10.0, 12.0, 13.0)] == [2.0, 2.0, 2.0]
    assert np.isclose(fold_ledger(log)["overhead_gpu_s"], 5 * 2 + 1 * 3)
