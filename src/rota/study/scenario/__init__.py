"""Scenarios: requests one after the other, with what is expected of each (`play.run_scenario`).

`hived` plays them on HiveD's algorithm alone, `queue` on an engine.
"""
