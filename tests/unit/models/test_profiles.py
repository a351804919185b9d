import pytest

from rota.core.errors import InputError
from rota.models.profiles import digits_of, load_profiles
from typed_profile_files import write_profiles


@pytest.fixture
def folder(tmp_path):
    return load_profiles(str(write_profiles(tmp_path)))


def test_epochs_and_gradients(folder):
    learning = folder.learning("net")
    assert learning.epochs == 12
    assert learning.levels[:3] == [0.0, 1000.0, 2000.0]
    assert (learning.init_batch, learning.max_batch) == (32, 512)
    assert learning.gradients(32, 0) == (1.0, 2.5)
    assert learning.gradients(80, 3) == (1.0, 4.0)
    assert learning.iterations(80, 0) == pytest.approx((1000 + 250) / 2)


def test_times_lie_between_measured_batches(folder):
    steps = folder.steps("net", "slow")
    assert (steps.min_batch, steps.max_batch, steps.node_gpus) == (16, 256, 4)
    assert steps.times((1,), 40) == pytest.approx((0.14, 0.0))
    assert steps.times((2, 1), 64) == steps.times((1, 2), 64) == pytest.approx((0.224, 0.06))
    assert steps.alone == pytest.approx(256 / 0.356)


def test_a_placement_that_was_not_measured_lies_between_others(folder):
    steps = folder.steps("net", "slow")
    step_s, sync_s = steps.times((2, 2, 2), 64)
    assert steps.times((4,), 64)[0] < step_s <= 0.164 + 0.1 + 1e-9
    assert 0 < sync_s <= 0.1
    with pytest.raises(InputError, match="nothing was measured near 16 GPUs on 4 nodes"):
        steps.times((4, 4, 4, 4), 64)


def test_the_largest_batch_of_a_placement(folder):
    steps = folder.steps("net", "fast")
    assert steps.most_at((4,)) == 256
    assert steps.most_at((4, 4, 4)) == 256
    assert steps.most_on(3) == 256
    assert steps.most_on(11) == float("inf")


def test_digits_begin_where_they_are_smallest():
    assert digits_of((4, 1, 3)) == "134"
    assert digits_of((2, 1)) == "12"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda folder: folder.learning("other"), "no profile of 'other', only of net"),
        (lambda folder: folder.steps("net", "k80"), "knows the GPU types fast, slow"),
        (lambda folder: folder.steps("net"), r"tells GPU types apart \(fast, slow\)"),
    ],
)
def test_what_is_missing_is_named(folder, ask, message):
    with pytest.raises(InputError, match=message):
        ask(folder)


def test_files_that_are_no_profiles(tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        load_profiles(str(tmp_path / "none"))
    made = write_profiles(tmp_path / "made")
    (made / "net" / "placements-slow.csv").write_text("placement,local_bsz\n1,x\n")
    with pytest.raises(InputError, match="columns local_bsz, step_time, sync_time"):
        load_profiles(str(made)).steps("net", "slow")
    (made / "net" / "placements-slow.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n2,16,0.1,0\n"
    )
    with pytest.raises(InputError, match="begins with a single GPU"):
        load_profiles(str(made)).steps("net", "slow")


def test_where_nothing_near_was_measured_the_throughput_model_says_it(folder):
    """A step takes 0.1 s and 1 ms a sample, an exchange between nodes 0.06 to 0.1 s."""
    steps = folder.steps("net", "slow")
    assert steps.predicted((2, 2), 64) == steps.times((2, 2), 64)
    step_s, sync_s = steps.predicted((4, 4, 4, 4), 64)
    assert step_s - sync_s == pytest.approx(0.164, rel=0.05)
    assert 0.01 < sync_s < 0.3
