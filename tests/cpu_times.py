"""CPU time of tests: of the process that runs them and of the processes they have waited for.

Wall-clock time says how busy the machine is, CPU time what a test costs. The summary always has
the total; `--cpu-times N` adds the N most costly tests and every file.
"""

import resource
import time
from collections import defaultdict

import pytest


def used_s():
    """CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class CpuTimes:
    """Notes what each phase of a test uses; workers send it along with their reports."""

    def __init__(self, config):
        self.config = config
        self.before_s = 0.0
        self.workers_s = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """A test begins."""
        self.before_s = used_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """A phase of it has ended."""
        report = yield
        now_s = used_s()
        report.cpu_s, self.before_s = now_s - self.before_s, now_s
        return report

    def pytest_sessionfinish(self):
        """Tell the controller the total of this worker."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["cpu_s"] = used_s()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        """A worker has ended; one that crashed tells nothing."""
        self.workers_s += getattr(node, "workeroutput", {}).get("cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter):
        """Print the total, and on request where it went."""
        tests, files = defaultdict(float), defaultdict(float)
        for reports in terminalreporter.stats.values():
            for report in reports:
                cpu_s = getattr(report, "cpu_s", 0.0)
                if cpu_s:
                    tests[report.nodeid] += cpu_s
                    files[report.nodeid.partition("::")[0]] += cpu_s
        terminalreporter.section("CPU time")
        number = self.config.getoption("--cpu-times")
        for costs in (files, tests) if number else ():
            for name in sorted(costs, key=costs.get, reverse=True)[:number]:
                terminalreporter.line(f"{costs[name]:8.2f} s  {name}")
        total_s = time.process_time() + self.workers_s if self.workers_s else used_s()
        within_s = sum(tests.values())
        terminalreporter.line(f"{total_s:8.2f} s  all, {within_s:.2f} s of it in tests")
