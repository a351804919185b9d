"""The tree of tenants."""

import pytest

from rota.core.errors import ClusterSpecError
from rota.core.events import INF
from rota.core.tenants import PriorityClass, Tenant, TenantTree

FAMILY = [Tenant("team", "lab", limit=4), Tenant("root", quota=8), Tenant("lab", "root")]


def test_the_path_leads_to_the_root():
    tree = TenantTree(FAMILY)
    assert [tenant.name for tenant in tree.path("team")] == ["team", "lab", "root"]
    assert [tenant.name for tenant in tree.path("root")] == ["root"]
    assert tree.get("team").limit == 4
    assert (len(tree), [tenant.name for tenant in tree]) == (3, ["team", "root", "lab"])


def test_an_undeclared_tenant_is_unrestricted():
    tree = TenantTree(FAMILY)
    assert tree.get("guest") == Tenant("guest", "", 0.0, INF, 1.0)
    assert list(tree.path("guest")) == [Tenant("guest")]
    assert len(tree) == 3


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ([Tenant("a"), Tenant("a", quota=2)], "^tenant 'a' is declared twice: "),
        ([Tenant("a", "b")], "^tenant 'a' has the unknown parent 'b': declare it"),
        ([Tenant("a", "b"), Tenant("b", "c")], "^tenant 'b' has the unknown parent 'c': "),
        ([Tenant("a", "a")], "^tenant 'a' is its own ancestor: "),
        ([Tenant("a", "b"), Tenant("b", "a")], "is its own ancestor: break the cycle"),
        (
            [Tenant("x", "a"), Tenant("a", "b"), Tenant("b", "c"), Tenant("c", "a")],
            "^tenant '[abc]' is its own ancestor: ",
        ),
    ],
)
def test_a_tree_that_is_none_is_refused(tenants, message):
    with pytest.raises(ClusterSpecError, match=message):
        TenantTree(tenants)


# --- priority classes -----------------------------------------------------------------------------

CLASSES = [PriorityClass("urgent", 100), PriorityClass("idle", -10, guaranteed=False)]


def test_a_priority_belongs_to_the_class_below_it():
    tree = TenantTree(classes=[*CLASSES, PriorityClass("usual", 0)])
    found = {p: tree.class_of(p).name for p in (-10, -1, 0, 99, 100, 5000)}
    assert found == {
        -10: "idle", -1: "idle", 0: "usual", 99: "usual", 100: "urgent", 5000: "urgent",
    }  # fmt: skip


def test_below_all_classes_the_sign_tells():
    tree = TenantTree()
    assert tree.class_of(0).guaranteed
    assert not tree.class_of(-1).guaranteed
    assert TenantTree(classes=CLASSES).class_of(-11) == PriorityClass("", -11, guaranteed=False)


def test_classes_by_name():
    assert TenantTree(classes=CLASSES).class_named("urgent").value == 100
    with pytest.raises(ClusterSpecError, match="unknown priority class 'urgnt': known: idle, urg"):
        TenantTree(classes=CLASSES).class_named("urgnt")
    with pytest.raises(ClusterSpecError, match="known: none is declared"):
        TenantTree().class_named("urgent")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([PriorityClass("a", 1), PriorityClass("a", 2)], "^priority class 'a' is declared twice"),
        ([PriorityClass("a", 1), PriorityClass("b", 1)], "'a' and 'b' both have the value 1"),
    ],
)
def test_classes_that_cannot_be(classes, message):
    with pytest.raises(ClusterSpecError, match=message):
        TenantTree(classes=classes)
