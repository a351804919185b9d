"""What pods tell, kubeconfigs, outputs, manifests: without a server."""

import base64
import ssl

import pytest

from rota.core.errors import ClusterError
from rota.live.drivers.kubernetes.access import KubeAccess, find_access
from rota.live.drivers.kubernetes.api import KubeApi, KubeError
from rota.live.drivers.kubernetes.launcher import PartEnd, read_end
from rota.live.drivers.kubernetes.logs import newer
from rota.live.drivers.kubernetes.manifest import label, pod, pod_name
from rota.live.drivers.kubernetes.nodes import PodOccupancy, read_node
from rota.live.drivers.kubernetes.options import KubernetesOptions
from rota.live.drivers.kubernetes.runs import judge
from slurm_runs import order

CONFIG = """\
current-context: x
contexts: [{name: x, context: {cluster: c, user: u, namespace: jobs}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443/"}}]
users: [{name: u, user: {%s}}]
"""


# --- access ---------------------------------------------------------------------------------------


def test_a_kubeconfig_gives_server_token_and_namespace(tmp_path):
    file = tmp_path / "config"
    file.write_text(CONFIG % "token: secret")
    access = find_access(str(file))
    assert (access.server, access.namespace) == ("https://127.0.0.1:6443", "jobs")
    assert access.headers() == {"authorization": "Bearer secret"}


def test_a_token_file_is_read_at_every_request(tmp_path):
    (tmp_path / "token").write_text("one\n")
    file = tmp_path / "config"
    file.write_text(CONFIG % "tokenFile: token")
    access = find_access(str(file))
    assert access.headers() == {"authorization": "Bearer one"}
    (tmp_path / "token").write_text("two\n")
    assert access.headers() == {"authorization": "Bearer two"}


@pytest.mark.parametrize(
    ("user", "context", "why"),
    [
        ("exec: {command: aws}", "", "needs a plug-in .exec.*service account"),
        ("username: a", "", "needs a password"),
        ("token: a", "y", "no entry 'y' in `contexts`"),
        (f"client-certificate-data: {base64.b64encode(b'x').decode()}, client-key-data: eA==", "",
         "certificate or key cannot be used"),
    ],
)  # fmt: skip
def test_what_a_kubeconfig_lacks_is_named(tmp_path, user, context, why):
    file = tmp_path / "config"
    file.write_text(CONFIG % user)
    with pytest.raises(ClusterError, match=why):
        find_access(str(file), context)


def test_a_server_that_does_not_answer_is_named():
    api = KubeApi(KubeAccess("http://127.0.0.1:1/", ssl.create_default_context()))
    with pytest.raises(KubeError, match=r"at http://127\.0\.0\.1:1 does not answer"):
        api.get("/version")
    api.close()


def test_no_cluster_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match=r"set `kubernetes\.kubeconfig`"):
        find_access()


# --- ends -----------------------------------------------------------------------------------------


def ended(code, message="", *, deleted=False, reason="", phase=None):
    over = {"exitCode": code, "message": message, "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:01:00Z"}  # fmt: skip
    about = {"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleted else {}
    status = {"phase": phase or ("Failed" if code else "Succeeded"), "reason": reason,
              "containerStatuses": [{"state": {"terminated": over}}]}  # fmt: skip
    return {"metadata": about, "status": status}


def test_a_pod_tells_how_long_it_took_and_who_asked():
    end = read_end(ended(0, "0 1 100.25 130.75 run\n", deleted=True))
    assert (end.code, end.asked, end.phase) == (0, True, "run")
    assert end.ended_unix - end.began_unix == pytest.approx(30.5)


@pytest.mark.parametrize(
    ("seen", "code", "asked", "known"),
    [
        (ended(3), 3, False, True),
        (ended(137, deleted=True), -9, True, True),
        (ended(143, "143 0 1.0 2.0 run"), -15, False, True),
        (ended(1, "not for us"), 1, False, True),
        (ended(1, reason="Evicted"), 1, False, False),
        ({"status": {"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}}, 1, False, False),
        ({"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}, 1, False, True),
        ({"metadata": {"deletionTimestamp": "x", "deletionGracePeriodSeconds": 0}, "status": {}},
         -9, True, True),
    ],
)  # fmt: skip
def test_ends(seen, code, asked, known):
    end = read_end(seen)
    assert (end.code, end.asked, end.known) == (code, asked, known)


@pytest.mark.parametrize(
    "status", [{}, {"phase": "Pending"}, {"phase": "Running", "containerStatuses": [{"state": {}}]}]
)
def test_no_end_yet(status):
    assert read_end({"metadata": {"deletionTimestamp": "x"}, "status": status}) is None


def test_of_several_parts_the_first_that_failed_by_itself_counts():
    fine, failed, ended_for_it = PartEnd(0), PartEnd(5), PartEnd(-15, asked=True)
    assert judge("1.0", [fine, ended_for_it, failed], ending=False).code == 5
    status = judge("1.0", [fine, PartEnd(0, asked=True)], ending=True)
    assert (status.state, status.code, status.asked) == ("ended", 0, True)
    gone = PartEnd(1, why="its node is gone", known=False)
    assert judge("1.0", [fine, gone], ending=False).state == "lost"
    assert judge("1.0", [ended_for_it], ending=False).state == "lost"


# --- output, names, manifests ---------------------------------------------------------------------


def test_lines_are_taken_once():
    text = b"2026-01-01T00:00:00.5Z a\n2026-01-01T00:00:00.51Z b\n"
    fresh, newest = newer(text, "")
    assert fresh == b"a\nb\n"
    again, newest = newer(text + b"2026-01-01T00:00:01Z c d\n", newest)
    assert (again, newest) == (b"c d\n", "2026-01-01T00:00:01Z")


def test_names_are_stable_and_different():
    names = {
        pod_name(store, run, rank) for store in "ab" for run in ("1.0", "1.1") for rank in (0, 1)
    }
    assert len(names) == 8
    assert pod_name("a", "1.0", 0) == pod_name("a", "1.0", 0)
    assert all(len(name) < 64 for name in names)
    assert label("a b/c" + "x" * 100) == "a-b-c" + "x" * 58


def test_a_pod_asks_for_what_its_part_has_and_takes_texts_literally():
    run = order("1.0", [("n1", 2), ("n2", 1)], run="echo $(date) $$", setup="", grace_s=0.5)
    body = pod("s", "jobs", run, 1, KubernetesOptions(image="i", tolerations=("gpu",)))
    spec = body["spec"]
    assert (spec["nodeName"], spec["restartPolicy"]) == ("n2", "Never")
    assert spec["terminationGracePeriodSeconds"] == 1
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert spec["containers"][0]["command"][-2] == "echo $$(date) $$$$"
    assert spec["automountServiceAccountToken"] is False
    with pytest.raises(ClusterError, match=r"kubernetes\.image"):
        pod("s", "jobs", run, 0, KubernetesOptions())


def test_the_image_of_a_job_is_that_of_its_pods():
    run = order("1.0", [("n1", 2)], run="true", setup="", image="example.org/own:2")
    for options in (KubernetesOptions(), KubernetesOptions(image="example.org/usual:1")):
        (container,) = pod("s", "jobs", run, 0, options)["spec"]["containers"]
        assert container["image"] == "example.org/own:2"


def test_who_holds_gpus():
    def holder(node, gpus, phase="Running"):
        limits = {"resources": {"limits": {"nvidia.com/gpu": gpus, "nvidia.com/mig-2g.10gb": 7}}}
        return {"spec": {"nodeName": node, "containers": [limits]}, "status": {"phase": phase}}

    held = PodOccupancy("nvidia.com/gpu")
    held.update(("d", "a"), holder("n1", 2))
    held.update(("d", "b"), holder("n1", 1))
    assert (held.held("n1"), held.holders("n1")) == (3, [("d", "a"), ("d", "b")])
    held.update(("d", "a"), ended(0) | {"spec": holder("n1", 2)["spec"]})
    held.update(("d", "b"), None)
    assert (held.held("n1"), held.holders("n1")) == (0, [])


def test_nodes_that_count():
    def node(gpus="4", labels=None, **spec):
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": [ready]}
        about = {"name": "n1", "labels": labels or {}}
        return {"metadata": about, "spec": spec, "status": status}

    options = KubernetesOptions(tolerations=("mine",))
    seen = read_node(node(), options)
    assert (seen.spec.gpus, seen.ready, seen.closed) == (4, True, "")
    assert read_node(node("0"), options) is None
    assert read_node(node(), KubernetesOptions(node_selector={"pool": "a"})) is None
    assert read_node(node(unschedulable=True), options).closed == "cordoned in Kubernetes"
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("mine", "theirs")]
    assert read_node(node(taints=taints[:1]), options).closed == ""
    assert read_node(node(taints=taints), options).closed == "tainted in Kubernetes: theirs"
