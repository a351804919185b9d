"""The alert rules speak of numbers that there are."""

import re

import yaml

from shared_data import CHECKOUT

RULES = CHECKOUT / "examples" / "prometheus" / "rota-alerts.yml"
NAME = re.compile(r"\brota_[a-z_]+")


def test_every_alert_has_a_summary_and_a_metric_that_is_served():
    source = (CHECKOUT / "src" / "rota" / "api" / "metrics.py").read_text()
    served = set(NAME.findall(source))
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert group["rules"]
    for rule in group["rules"]:
        assert rule["annotations"]["summary"]
        for name in NAME.findall(rule["expr"]):
            assert name.removesuffix("_bucket") in served, name
