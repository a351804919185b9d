"""The copy of a collection: what its thread does when the server ends watches, or stumbles."""

from rota.live.drivers.kubernetes.api import OPENED, KubeError
from rota.live.drivers.kubernetes.cache import FIRST_NAP_S, LONGEST_NAP_S, ObjectCache


def thing(name, version):
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class ScriptedApi:
    """A server that answers each watch by a list of changes, or by an error."""

    def __init__(self, *watches):
        self.watches = list(watches)
        self.asked = []

    def pages(self, path):
        return [thing("a", 1)], "1"

    def watch(self, path, version):
        self.asked.append(version)
        answer = self.watches.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield OPENED, {}
        yield from answer


class Pauses:
    """In the place of the event by which a cache is closed: nobody waits, and all is counted."""

    def __init__(self, api):
        self.api = api
        self.naps = []

    def is_set(self):
        return not self.api.watches

    def wait(self, seconds):
        self.naps.append(seconds)


def watched(*watches):
    """Return what a cache did until all of this was answered: versions, naps, and the cache."""
    api = ScriptedApi(*watches)
    cache = ObjectCache(api, "/things", lambda key: None)
    cache._closing = Pauses(api)
    cache._work()
    return api.asked, cache._closing.naps, cache


def test_a_server_that_ends_watches_at_once_is_asked_ever_more_rarely():
    asked, naps, _ = watched(*[[]] * 12)
    assert asked == ["1"] * 12
    assert naps[:3] == [FIRST_NAP_S, 2 * FIRST_NAP_S, 4 * FIRST_NAP_S]
    assert naps[-1] == LONGEST_NAP_S


def test_a_watch_that_told_something_goes_on_at_once():
    told = [("MODIFIED", thing("a", 7))]
    asked, naps, cache = watched([], told, told, [], [])
    assert asked == ["1", "1", "7", "7", "7"]
    assert naps == [FIRST_NAP_S, FIRST_NAP_S]
    assert cache.get(("", "a")) == thing("a", 7)


def test_trouble_is_over_when_the_server_answers_and_not_with_the_next_change():
    gone = KubeError("the watch of /things broke", 0)
    _, _, cache = watched(gone, gone)
    assert cache.trouble == "the watch of /things broke"
    assert cache.unheard_since_s is not None
    _, _, cache = watched(gone, [("BOOKMARK", thing("", 3))], [])
    assert (cache.trouble, cache.unheard_since_s) == ("", None)

    api = ScriptedApi(gone, [], [])
    cache = ObjectCache(api, "/things", lambda key: None)
    cache._closing = Pauses(api)
    seen = []
    cache._closing.wait = lambda _seconds: seen.append(cache.trouble)
    cache._work()
    assert seen[:2] == ["the watch of /things broke", ""]
