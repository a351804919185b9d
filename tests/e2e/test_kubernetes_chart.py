"""Helm gives the chart of the examples to a real API server."""

from helm_chart import CHART, helm
from kube_cluster import KubeCluster, require_kubernetes

require_kubernetes()


def test_helm_installs_upgrades_and_removes_the_chart(tmp_path):
    helm("version", home=tmp_path)  # where there is none, no server is needed either
    with KubeCluster(tmp_path / "kube", nodes=0) as kube:
        installs_upgrades_and_removes(kube, tmp_path)


def installs_upgrades_and_removes(kube, home):
    def run(*words):
        return helm(*words, "-n", "charted", home=home, KUBECONFIG=str(kube.kubeconfig))

    def names(path):
        return {item["metadata"]["name"] for item in kube.api.get(path)["items"]}

    def rights():
        return names("/apis/rbac.authorization.k8s.io/v1/clusterroles") & {
            "rota", "rota-scheduler", "rota-queue",
        }  # fmt: skip

    sets = "/apis/apps/v1/namespaces/charted/statefulsets"
    run("install", "rota", str(CHART), "--create-namespace", "--set", "queue=true")
    assert rights() == {"rota", "rota-queue"}
    (made,) = kube.api.get(sets)["items"]
    assert made["spec"]["template"]["spec"]["serviceAccountName"] == "rota"
    run("upgrade", "rota", str(CHART), "--set", "scheduler=true", "--set", "image=own/rota:1")
    assert rights() == {"rota", "rota-scheduler"}
    (made,) = kube.api.get(sets)["items"]
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "own/rota:1"
    run("uninstall", "rota")
    assert rights() == set()
    assert names(sets) == set()
