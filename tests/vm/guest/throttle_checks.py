"""The host's throttle on cgroup v2, tried here where there is one; hosts of the rig are often v1."""

import pathlib
import subprocess
import sys
import threading

from checks import SHARE, check, read, require

sys.path.insert(0, str(SHARE / "rig"))


@check("rig.throttle-on-cgroup-v2", needs=("rig.cgroup-v2",))
def throttle_on_v2():
    import throttle
    program = ("import threading, time\n"
               "for _ in range(2): threading.Thread(target=time.sleep, args=(60,)).start()\n")
    child = subprocess.Popen([sys.executable, "-c", program])
    tasks = pathlib.Path(f"/proc/{child.pid}/task")
    while len(list(tasks.iterdir())) < 3:
        threading.Event().wait(0.1)
    threads = sorted(int(task.name) for task in tasks.iterdir())[1:]
    group = throttle.make_group("flashd-test-vm-v2", child.pid, threads)
    try:
        directory = pathlib.Path("/sys/fs/cgroup/flashd-test-vm-v2")
        require(isinstance(group, throttle.GroupV2), "not recognised as v2")
        group.weight(throttle.WEIGHT_ARMED)
        group.limit(1, throttle.quota_us(0.6, 1000))
        require(read(directory / "vcpu1/cpu.max") == "4000 20000", "no quota")
        require(read(directory / "vcpu0/cgroup.threads") == str(threads[0]), "no thread")
        group.limit(1, None)
        require(read(directory / "vcpu1/cpu.max") == "max 20000", "the quota stayed")
    finally:
        child.kill()
        child.wait()
        group.remove()
    require(not directory.exists(), "the group stayed")
