"""Measures the CPU time that other processes use. A figure may become a headline only if this time is short."""

import os
import resource
import time

LIMIT = 0.3  # CPUs that other processes may keep busy, on average
SECONDS = 3  # of the measurement before a part
TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU seconds of all processes since boot, at any priority, and of other guests of the host (steal)."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, _, _, steal = (int(x) for x in f.readline().split()[1:9])
    return (user + nice + system + steal) / TICKS


def own_seconds():
    """CPU seconds of this process and of its descendants that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def processes():
    """CPU seconds and name of each process, by number."""
    out = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    head, _, tail = f.read().rpartition(")")
            except OSError:
                continue  # the process has ended
            fields = tail.split()
            out[int(name)] = (int(fields[11]) + int(fields[12])) / TICKS, head.partition("(")[2]
    return out


class Watch:
    """The load that other processes cause from the start of the watch on."""

    def __init__(self):
        self.started, self.busy, self.own, self.before = time.monotonic(), busy_seconds(), own_seconds(), processes()

    def load(self):
        """CPUs that other processes kept busy, on average. All children of this process must have ended."""
        others = busy_seconds() - self.busy - (own_seconds() - self.own)
        return max(0.0, others / (time.monotonic() - self.started))

    def others(self, most=3):
        """The processes that used most CPU time, as a text."""
        took = time.monotonic() - self.started
        loads = []
        for pid, (seconds, name) in processes().items():
            load = (seconds - self.before.get(pid, (0.0, ""))[0]) / took
            if pid != os.getpid() and load >= 0.02:
                loads.append((load, f"{name} ({pid}) {load:.2f}"))
        return ", ".join(text for _, text in sorted(loads, reverse=True)[:most]) or "processes that have ended"


def before():
    """The load now, and the processes that cause it."""
    watch = Watch()
    time.sleep(SECONDS)
    return watch.load(), watch.others()
