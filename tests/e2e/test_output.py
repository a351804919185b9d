"""What a job writes, as its owner sees it."""

ORDERED = """
seen() { until [ -e ../logs/0.order ] && [ "$(wc -l < ../logs/0.order)" -ge "$1" ]; do sleep 0.01
done; }
echo one; seen 2; echo two >&2; seen 3; echo three; seen 4; echo "no such layer" >&2
exit 3
"""


def test_both_outputs_in_order_and_the_last_words_of_a_failure(daemons):
    daemon = daemons("--nodes", "1x1")
    job = daemon.submit(ORDERED)
    followed = daemon.rota("logs", "-f", job).stdout
    daemon.until(job, "FAILED")
    assert followed == "one\ntwo\nthree\nno such layer\n"
    assert daemon.rota("logs", job).stdout == followed
    assert daemon.rota("logs", job, "--stdout").stdout == "one\nthree\n"
    assert daemon.rota("logs", job, "--stderr", "--tail", 1).stdout == "no such layer\n"
    shown = daemon.rota("show", job).stdout
    assert shown.endswith(
        f"the end of its error output (rota logs {job} --stderr):\n  two\n  no such layer\n"
    )
