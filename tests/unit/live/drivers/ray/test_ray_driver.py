"""The driver of Ray on a port that only remembers: when groups are made, watched and removed."""

import msgspec
import pytest

from agents_net import eventually
from rota.core.errors import ClusterError
from rota.live.drivers.ray import RayDriver, RayOptions
from rota.live.drivers.ray.port import RayGroup, RayMoment, RayNode, RayPart, RayView
from slurm_runs import Ears, order

BEGAN, ENDED = RayMoment(1000.0, 50.0), RayMoment(9999.0, 57.5)
RUNNING = RayPart("running", ran=True, began=BEGAN)


class FakeRay:
    """Groups that are placed at once; parts become what the test says."""

    def __init__(self, nodes=2, gpus=4.0):
        self.nodes = {
            f"n{i}": RayNode(f"id{i}", f"n{i}", resources={"GPU": gpus}, free=gpus)
            for i in range(1, nodes + 1)
        }
        self.groups = {}
        self.made = []  # (run, [NewPart])
        self.stopped = []  # (run, rank, how)
        self.texts = {}  # (run, rank, name)
        self.trouble = None  # what every request raises
        self.closed = False

    def look(self):
        if self.trouble:
            raise self.trouble
        return RayView(tuple(self.nodes.values()), dict(self.groups))

    def create(self, run, parts):
        if self.trouble:
            raise self.trouble
        assert run not in [name for name, _ in self.made], "Ray takes a name once"
        self.made.append((run, list(parts)))
        held = tuple((part.node, part.bundle.get("GPU", 0.0)) for part in parts)
        self.groups[run] = RayGroup("CREATED", (RayPart("waiting"),) * len(parts), held)
        for node, gpus in held:
            self.take(node, gpus)

    def take(self, node_id, gpus):
        """GPUs of a node are held, or given back."""
        node = next(node for node in self.nodes.values() if node.id == node_id)
        self.nodes[node.name] = msgspec.structs.replace(node, free=node.free - gpus)

    def stop(self, run, rank, how):
        self.stopped.append((run, rank, how))

    def read(self, run, rank, name, offset, limit):
        return offset, self.texts.get((run, rank, name), b"")[offset : offset + limit]

    def remove(self, run):
        if self.trouble:
            raise self.trouble
        for node, gpus in self.groups.pop(run, RayGroup("")).held:
            self.take(node, -gpus)

    def close(self):
        self.closed = True

    def set(self, run, *parts, state="CREATED"):
        """What becomes of the parts of a run."""
        self.groups[run] = RayGroup(state, parts, self.groups[run].held)


@pytest.fixture
def ray():
    return FakeRay()


@pytest.fixture
def drive(ray, tmp_path):
    opened = []

    def start(runs=(), halting=()):
        driver, ears = RayDriver("store", tmp_path, RayOptions(poll_s=0.01), port=ray), Ears()
        opened.append(driver)
        driver.open(ears)
        driver.adopt(runs, frozenset(halting))
        return driver, ears

    yield start
    for driver in opened:
        driver.close()


def launched(ray, driver, *runs):
    for run in runs:
        driver.launch(run)
    eventually(lambda: [name for name, _ in ray.made] == [run.run for run in runs])


def test_a_gang_is_one_group_with_a_bundle_for_each_node(ray, drive):
    driver, ears = drive()
    assert ears.node("n1", "up").spec.gpus == 4
    run = order("1.0", [("n2", 3), ("n1", 1)], run="echo", per="gpu", envs={"RANK": "x"})
    launched(ray, driver, run)
    (first, second) = ray.made[0][1]
    assert (first.node, first.bundle) == ("id2", {"GPU": 3.0})
    assert (second.node, second.bundle) == ("id1", {"GPU": 1.0})
    env, processes = first.asked["order"]["env"], first.asked["order"]["processes"]
    assert (env["WORLD_SIZE"], env["NODE_RANK"], env["ROTA_NODE_NAME"]) == ("4", "0", "n2")
    assert env["RANK"] == "x"
    assert [each["LOCAL_RANK"] for each in processes] == ["0", "1", "2"]
    assert second.asked["files"]["job/run.sh"] == "echo"
    assert "CUDA_VISIBLE_DEVICES" in first.asked["visible"]


def test_it_runs_when_all_parts_do_and_is_as_long_as_the_nodes_measured(ray, drive):
    driver, ears = drive()
    launched(ray, driver, order("1.0", [("n1", 1), ("n2", 1)], run="echo"))
    ray.set("1.0", RUNNING, RayPart("starting"))
    ray.texts["1.0", 0, "out"] = b"hello\n"
    ray.set("1.0", RUNNING, RUNNING)
    assert ears.run("1.0", "running").began_s is not None
    done = msgspec.structs.replace(RUNNING, state="ended", ended=ENDED)
    ray.set("1.0", done, done)
    end = ears.ends("1.0")
    assert (end.state, end.code, end.asked) == ("ended", 0, False)
    assert end.ended_s - end.began_s == pytest.approx(7.5)
    assert driver.read_log("1", "all", 0, 0, 100) == b"hello\n"
    assert "1.0" in ray.groups  # until its end was understood
    driver.forget("1.0")
    eventually(lambda: not ray.groups)
    assert [message.state for message in ears.of("1.0")] == ["running", "ended"]


def test_a_part_that_fails_ends_the_others(ray, drive):
    driver, ears = drive()
    launched(ray, driver, order("1.0", [("n1", 1), ("n2", 1)], run="echo"))
    failed = RayPart("ended", ran=True, code=7, why="exit code 7", began=BEGAN, ended=ENDED)
    ray.set("1.0", RUNNING, failed)
    eventually(lambda: ray.stopped == [("1.0", 0, "halt")])
    ray.set("1.0", msgspec.structs.replace(RUNNING, state="ended", asked=True), failed)
    end = ears.ends("1.0")
    assert (end.state, end.code, end.why) == ("ended", 7, "node n2: exit code 7")


def test_a_successor_waits_until_the_gpus_are_free(ray, drive):
    driver, ears = drive()
    launched(ray, driver, order("1.0", [("n1", 3)], run="echo"))
    ray.set("1.0", RUNNING)
    ears.run("1.0", "running")
    driver.launch(order("2.0", [("n1", 2)], run="echo"))
    driver.halt("1.0")
    eventually(lambda: ray.stopped == [("1.0", 0, "halt")])
    assert len(ray.made) == 1
    driver.kill("1.0")
    eventually(lambda: ray.stopped[1:] == [("1.0", 0, "kill")])
    ray.set("1.0", msgspec.structs.replace(RUNNING, state="ended", asked=True))
    assert ears.ends("1.0").asked
    assert len(ray.made) == 1  # its actor still holds them
    driver.forget("1.0")
    eventually(lambda: len(ray.made) == 2)


def test_a_run_that_has_no_place_yet_is_taken_back(ray, drive):
    driver, ears = drive()
    launched(ray, driver, order("1.0", [("n1", 1)], run="echo"))
    ray.set("1.0", RayPart("waiting"), state="PENDING")
    driver.halt("1.0")
    assert ears.ends("1.0").asked
    assert not ray.groups
    assert not ray.stopped
    driver.halt("7.0")  # never launched
    assert ears.ends("7.0").asked


def test_an_actor_that_died_loses_the_run_and_ends_the_rest(ray, drive):
    driver, ears = drive()
    launched(ray, driver, order("1.0", [("n1", 1), ("n2", 1)], run="echo"))
    ray.set("1.0", RUNNING, RUNNING)
    ears.run("1.0", "running")
    ray.set("1.0", RayPart("gone", ran=True, why="The actor is dead"), RUNNING)
    eventually(lambda: ray.stopped == [("1.0", 1, "halt")])
    ray.set("1.0", RayPart("gone", ran=True), msgspec.structs.replace(RUNNING, state="ended"))
    end = ears.ends("1.0")
    assert (end.state, end.why) == ("lost", "node n1: The actor is dead")


def test_after_a_restart_what_was_noted_is_found_or_lost_and_what_was_not_is_launched(
    ray, drive, tmp_path
):
    driver, ears = drive()
    runs = [order(f"{i}.0", [("n1", 1)], run="echo") for i in (1, 2, 3)]
    launched(ray, driver, *runs)
    for name in ("1.0", "2.0", "3.0"):
        ray.set(name, RUNNING)
        ears.run(name, "running")
    driver.close()
    ray.remove("2.0")  # Ray lost it while nobody looked
    driver, ears = drive([runs[0], runs[1], order("4.0", [("n2", 1)], run="echo")], ["1.0"])
    assert ears.ends("2.0").state == "lost"
    eventually(lambda: ray.made[3:] and ray.made[3][0] == "4.0")
    eventually(lambda: ray.groups.keys() == {"1.0", "4.0"})  # nobody wanted the third
    eventually(lambda: {each.name for each in tmp_path.glob("runs/*")} == {"1.0", "2.0", "4.0"})
    eventually(lambda: ray.stopped == [("1.0", 0, "halt")])


def test_a_part_whose_actor_nobody_finds_is_never_made_again(ray, drive):
    driver, ears = drive()
    run = order("1.0", [("n1", 1), ("n2", 1)], run="echo")
    launched(ray, driver, run)
    driver.close()
    ray.set("1.0", RUNNING, RayPart("none"))  # the daemon was killed between the two, or it died
    driver, ears = drive([run])
    eventually(lambda: ray.stopped == [("1.0", 0, "halt")])
    ray.set("1.0", msgspec.structs.replace(RUNNING, state="ended", asked=True), RayPart("none"))
    assert ears.ends("1.0").state == "lost"
    assert len(ray.made) == 1


def test_while_ray_is_out_of_reach_nothing_is_lost(ray, drive):
    driver, ears = drive()
    ears.node("n1", "up")
    ray.trouble = ClusterError("Ray is out of reach", retryable=True)
    driver.launch(order("1.0", [("n1", 1)], run="echo"))
    eventually(lambda: driver.trouble() == "Ray is out of reach")
    ray.trouble = None
    eventually(lambda: [name for name, _ in ray.made] == ["1.0"])  # it had not been noted
    eventually(lambda: driver.trouble() == "")


def test_a_run_whose_creation_failed_half_way_is_lost_and_not_made_again(ray, drive, monkeypatch):
    driver, ears = drive()
    ears.node("n1", "up")
    tried = []

    def fail(run, parts):
        tried.append(run)
        raise ClusterError("Ray's bridge ended", retryable=True)

    monkeypatch.setattr(ray, "create", fail)
    driver.launch(order("1.0", [("n1", 1)], run="echo"))
    end = ears.ends("1.0")
    assert (end.state, end.why) == ("lost", "Ray does not know it any more")
    assert tried == ["1.0"]


def test_what_ray_will_never_take_fails_its_run(ray, drive, monkeypatch):
    driver, ears = drive()
    ears.node("n1", "up")

    def refuse(run, parts):
        raise ClusterError("ValueError: Bundles must be a list")

    monkeypatch.setattr(ray, "create", refuse)
    driver.launch(order("1.0", [("n1", 1)], run="echo"))
    end = ears.ends("1.0")
    assert (end.state, end.code, end.why) == (
        "ended", 125, "refused: ValueError: Bundles must be a list",
    )  # fmt: skip


def test_a_node_that_died_is_lost_and_one_that_was_restarted_is_another(ray, drive):
    driver, ears = drive()
    ears.node("n2", "up")
    ray.nodes["n2"] = msgspec.structs.replace(ray.nodes["n2"], alive=False, why="no heartbeat")
    assert ears.node("n2", "lost").why == "Ray: no heartbeat"
    driver.launch(order("1.0", [("n2", 1)], run="echo"))
    end = ears.ends("1.0")
    assert (end.state, end.why) == ("lost", "node n2 is gone")
    ears.messages.clear()
    ray.nodes["n2"] = RayNode("id7", "n2", resources={"GPU": 8.0}, free=8.0)
    assert ears.node("n2", "up").spec.gpus == 8
    ears.messages.clear()
    ray.nodes["n2"] = msgspec.structs.replace(ray.nodes["n2"], id="id8")
    assert ears.node("n2", "lost").why == "Ray was restarted there"
    ears.node("n2", "up")


def test_gpus_that_others_hold_close_a_node_until_they_are_free(ray, drive, monkeypatch):
    monkeypatch.setattr("rota.live.drivers.ray.driver.STRANGERS_S", 0.0)
    driver, ears = drive()
    launched(ray, driver, order("1.0", [("n1", 2)], run="echo"))
    ray.take("id1", 1.0)
    assert ears.node("n1", "sick").why == "others hold 1 of its GPUs in Ray"
    ray.take("id1", -1.0)
    ears.node("n1", "well")


def test_nodes_without_gpus_and_second_ones_of_a_name_are_not_used(ray, drive, caplog):
    ray.nodes["head"] = RayNode("id0", "head", resources={"CPU": 4.0})
    ray.nodes["twin"] = RayNode("id9", "n1", resources={"GPU": 64.0}, free=64.0)
    driver, ears = drive()
    assert ears.node("n1", "up").spec.gpus == 4
    ears.node("n2", "up")
    assert driver.preflight() == ["2 nodes with 8 GPUs"]
    assert "start them with --node-name" in caplog.text


def test_a_run_that_ray_does_not_start_is_told_in_the_log(ray, drive, monkeypatch, caplog):
    monkeypatch.setattr("rota.live.drivers.ray.runs.WAITING_S", 0.0)
    driver, _ = drive()
    launched(ray, driver, order("1.0", [("n1", 1)], run="echo"))
    eventually(lambda: "Ray has not started run 1.0 yet: see `ray status`" in caplog.text)


def test_what_a_job_reports_is_told_once(ray, drive):
    driver, ears = drive()
    launched(ray, driver, order("1.0", [("n1", 1)], run="echo"))
    ray.set("1.0", msgspec.structs.replace(RUNNING, values={"steps": 3.0}))
    assert ears.measured("1.0").values == {"steps": 3.0}
    ray.set("1.0", msgspec.structs.replace(RUNNING, state="ended", values={"steps": 3.0}))
    ears.ends("1.0")
    assert len([m for m in ears.messages if type(m).__name__ == "RunMetrics"]) == 1
