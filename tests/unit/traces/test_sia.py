import pytest

from rota.core.errors import InputError, OptionError, TraceError
from rota.models.profiles import MeasuredTraining
from rota.traces.formats import sia
from typed_profile_files import WORKLOAD, write_all


@pytest.fixture
def files(tmp_path):
    return write_all(tmp_path)


def load(files, **options):
    profiles, workload = files
    return sia.FORMAT.load(workload, {"profiles": str(profiles), "reference": "slow", **options})


def test_jobs_train_as_profiles_say(files):
    imported = load(files)
    specs, behaviours = imported.workload.specs, imported.workload.behaviours
    assert [spec.submit_s for spec in specs] == [7.0, 30.0, 95.0, 200.0, 400.0]  # of the file
    assert [spec.request.sizes for spec in specs] == [(1, 64), (1, 64), (4, 4), (1, 64), (1, 64)]
    trainings = [behaviour.training for behaviour in behaviours]
    assert trainings[0] == MeasuredTraining(str(files[0]), "net", 256, tuned=True)
    assert [training.tuned for training in trainings] == [True, False, False, True, True]
    assert behaviours[1].work == pytest.approx(trainings[1].alone_s(2, "slow"))
    assert behaviours[1].speeds["slow"] == 1
    assert behaviours[1].speeds["fast"] == pytest.approx(
        trainings[1].alone_s(2, "slow") / trainings[1].alone_s(2, "fast")
    )
    assert not imported.quality.repaired  # nothing is guessed


def test_a_part_of_the_jobs_trains_too(files):
    first = load(files).first(2)
    assert [behaviour.training.batch for behaviour in first.workload.behaviours] == [256, 128]
    rigid = load(files, statuses="rigid").workload
    assert [behaviour.training.batch for behaviour in rigid.behaviours] == [128]


def test_without_profiles_run_times_are_guessed(files):
    imported = sia.FORMAT.load(files[1], {"hours": "net:1"})
    assert imported.workload.behaviours[0].training is None
    assert imported.workload.specs[0].submit_s == 0


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("256,adaptive", ",adaptive", TraceError, "net-0 has no batch_size"),
        ("256,adaptive", "9999,adaptive", TraceError, "net-0 has batch_size 9999: .* 32 to 512"),
        ("scale-gpus", "odd", TraceError, "net-1 has the category 'odd': write one of adaptive"),
        ("7,net,", "7,other,", InputError, "no profile of 'other'"),
        ("net,4,256", "net,600,256", OptionError, "reference=slow has no profile of 'net' on 600"),
        ("net,4,256", "net,600,256", OptionError, "no other type has: ask for fewer"),
    ],
)
def test_what_profiles_do_not_know_is_refused(files, old, new, error, message):
    files[1].write_text(WORKLOAD.replace(old, new, 1))
    with pytest.raises(error, match=message):
        load(files)


def test_profiles_without_gpu_types_are_told_from_those_that_do_not_reach_so_far(files):
    for path in files[0].glob("*/placements-*.csv"):
        path.unlink()
    with pytest.raises((OptionError, InputError), match="without GPU types"):
        load(files)
