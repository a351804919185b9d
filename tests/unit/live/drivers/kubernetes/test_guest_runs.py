"""The index of pods that others made."""

import threading

from rota.live.drivers.kubernetes.cache import key_of
from rota.live.drivers.kubernetes.guest_runs import GuestRuns
from rota.live.drivers.kubernetes.guests import TAKEN, TAKEN_RUN
from rota.live.drivers.kubernetes.manifest import short
from rota.live.drivers.kubernetes.notes import ObjectNotes


class Pods:
    """The cache; `after_read` happens when a pod was read, and before the reader goes on."""

    def __init__(self):
        self.objects = {}
        self.after_read = None

    def get(self, key):
        item, self.after_read, happens = self.objects.get(key), None, self.after_read
        if happens is not None:
            happens()
        return item


def pod(**annotations):
    about = {"namespace": "default", "name": "train", "uid": "u1", "annotations": annotations}
    return {"metadata": about, "spec": {"schedulerName": "rota"}}


def test_a_pod_that_is_taken_while_another_thread_looks_at_it_stays_taken():
    pods = Pods()
    runs = GuestRuns(None, pods, "store", "rota", 1.0, "nvidia.com/gpu", ObjectNotes(None, 0.0))
    fresh, taken = pod(), pod(**{TAKEN: short("store"), TAKEN_RUN: "7.1"})
    key = key_of(fresh)

    def take():
        pods.objects[key] = taken
        runs.look_at(key)

    driver = threading.Thread(target=take)

    def in_between():
        driver.start()
        driver.join(0.2)  # it comes first, or has to wait for whoever looks

    pods.objects[key] = fresh
    pods.after_read = in_between
    runs.look_at(key)
    driver.join()

    assert runs.alive("7"), "the older of two looks was noted last"
