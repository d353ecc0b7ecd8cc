#!/usr/bin/env python3
"""soak.py [MINUTES] [SEED]: exposes small runs to random faults, for a given time (docs/reliability.md, row F15).

Each run trains with 1 to 3 ranks and has up to four faults, one after another. After each fault the script starts the run
again with the same command, until the run is complete.

Checks after each fault:
- Within a minute, the process ends or continues to train.
- Its exit code is documented for this fault.
- None of its processes still runs.
- Every checkpoint is valid.

Checks at the end of each run: every step was done, and the files of the final checkpoint equal those of a run without faults.
A trial in which the run had not begun or had already ended does not count. As root, the script mounts its own file system
for full disks.

The program is ./hetero-train or $HETERO_TRAIN. The script prints each violation with the seed of its trial; the last line has
the counts. Exit code 1: violations.
"""
import collections, hashlib, os, random, shutil, signal, subprocess, sys, tempfile, time

PROGRAM = os.path.abspath(os.environ.get("HETERO_TRAIN", "hetero-train"))
STEPS, PATIENCE = 4000, 60  # PATIENCE: seconds after which the script reports a hang
VERIFY_TIME = 60


def command(folder, ranks):
    sets = [f"parallel.ranks={ranks}", f"train.steps={STEPS}", "model.channels=[4]", "data.image_size=8",
            "data.num_samples=240", "data.batch_size=12", "device.kind=cpu",
            "device.threads=1", "checkpoint.interval_steps=40", "checkpoint.keep=2", "train.log_interval=1",
            "profile.enabled=false", f"experiment.output_dir={folder}",
            "experiment.name=run"]
    args = [PROGRAM, "train", "--model", "simple_cnn", "--dataset", "synthetic_image"]
    for s in sets:
        args += ["--set", s]
    return args


def digest(folder):
    checkpoints = os.path.join(folder, "run", "checkpoints")
    last = os.path.join(checkpoints, f"step-{STEPS:08d}")
    return {name: hashlib.sha256(open(os.path.join(last, name), "rb").read()).hexdigest()
            for name in ("model.safetensors", "optimizer.safetensors")}


def processes(folder):
    """The living processes whose command line names folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = open(f"/proc/{pid}/cmdline", "rb").read()
            state = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if os.fsencode(folder) in text and b"checkpoint\0verify" not in text and state != "Z" and int(
                pid) != os.getpid():
            found.append(int(pid))
    return found


def log_size(folder):
    try:
        return os.path.getsize(os.path.join(folder, "run", "logs", "train.log"))
    except OSError:
        return 0


def trains(folder, before):
    """Whether the log file contains a step after its first bytes."""
    try:
        with open(os.path.join(folder, "run", "logs", "train.log"), "rb") as log:
            log.seek(before)
            return b"\nstep " in log.read()
    except OSError:
        return False


class Trial:
    def __init__(self, folder, ranks, rng):
        self.folder, self.ranks, self.rng = folder, ranks, rng
        self.out = open(os.path.join(folder, "output"), "ab")
        self.pipe = None
        self.process = None
        self.before = log_size(folder)

    def start(self, stdout):
        self.process = subprocess.Popen(command(self.folder, self.ranks), stdout=stdout, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL)

    def await_steps(self):
        deadline = time.monotonic() + PATIENCE
        while not trains(self.folder, self.before):
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        time.sleep(self.rng.uniform(0, 1.2))
        return self.process.poll() is None

    def end(self):
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return None

    def some_rank(self):
        ranks = [p for p in processes(self.folder) if p != self.process.pid] or [self.process.pid]
        return self.rng.choice(ranks)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


# Each fault returns its documented exit codes. 0 is always permitted, because the run may have just ended. None means
# that the run must continue and end with 0.
def kill_supervisor(t):
    send(t.process.pid, signal.SIGKILL)
    return {-9}


def kill_rank(t):
    pid = t.some_rank()
    send(pid, signal.SIGKILL)
    return {-9} if pid == t.process.pid else {5}


def terminate(t):
    send(t.process.pid, signal.SIGTERM)
    return {75}


def interrupt(t):
    send(t.process.pid, signal.SIGINT)
    return {130}


def terminate_rank(t):
    send(t.some_rank(), signal.SIGTERM)
    return {75}


def save_now(t):
    send(t.process.pid, signal.SIGUSR1)
    return None


def pause_rank(t):
    pid = t.some_rank()
    send(pid, signal.SIGSTOP)
    time.sleep(t.rng.uniform(0.1, 5))
    send(pid, signal.SIGCONT)
    return None


def pause_all(t):
    pids = processes(t.folder)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            send(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(t.rng.uniform(0.1, 8))
    return None


def reader_leaves(t):
    t.pipe.close()
    return None


def reader_pauses(t):
    return None  # no program reads the pipe until the run has ended


def disk_full(t):
    ballast = os.path.join(t.folder, "ballast")
    try:
        with open(ballast, "wb") as f:
            while True:
                f.write(bytes(1 << 20))
    except OSError:
        pass
    time.sleep(t.rng.uniform(0.1, 3))
    freed = t.rng.random() < 0.7
    if freed:
        os.remove(ballast)
        return {0, 7}  # the final save may have failed because of the full disk
    send(t.process.pid, signal.SIGTERM)
    return {7, 75, 143}


FAULTS = [kill_supervisor, kill_rank, terminate, interrupt, terminate_rank, save_now, pause_rank, pause_all,
          reader_leaves, reader_pauses]


def soak(root, minutes, seed, disks):
    rng = random.Random(seed)
    faults = FAULTS + ([disk_full] * 2 if disks else [])
    until = time.monotonic() + 60 * minutes
    trials, void, violations, runs, number = collections.Counter(), collections.Counter(), [], 0, 0
    clean = {}
    for ranks in (1, 2, 3):
        folder = os.path.join(root, f"clean{ranks}")
        os.mkdir(folder)
        subprocess.run(command(folder, ranks), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=10 * PATIENCE)
        clean[ranks] = digest(folder)
        shutil.rmtree(folder)

    while time.monotonic() < until:
        number += 1
        ranks, folder = rng.choice((1, 2, 2, 3)), os.path.join(root, f"run{number}")
        os.mkdir(folder)
        history = []

        def violation(text):
            violations.append(text)
            print(f"VIOLATION run {number} (seed {seed}), {ranks} ranks, {' '.join(history)}: {text}", flush=True)
            shutil.copytree(folder, f"{keep}/run{number}", dirs_exist_ok=True, ignore=shutil.ignore_patterns("ballast"))

        sound = True
        for _ in range(rng.randint(1, 4)):
            fault = rng.choice(faults)
            t = Trial(folder, ranks, rng)
            piped = fault in (reader_leaves, reader_pauses)
            if piped:
                read, write = os.pipe()
                t.pipe = os.fdopen(read, "rb")
                t.start(write)
                os.close(write)
            else:
                t.start(t.out)
            if not t.await_steps():
                code = t.end()
                void[fault.__name__] += 1
                if code != 0:
                    history.append("start")
                    violation(f"got exit code {code} before the fault, want 0")
                    sound = False
            else:
                history.append(fault.__name__)
                allowed = fault(t) or set()
                code = t.end()
                trials[fault.__name__] += 1
                if code is None:
                    violation(f"does not end within {PATIENCE} s")
                    sound = False
                elif code not in allowed | {0}:
                    violation(f"got exit code {code}, want one of {sorted(allowed | {0})}")
                    sound = False
            deadline = time.monotonic() + 5
            while processes(folder) and time.monotonic() < deadline:
                time.sleep(0.05)
            left = processes(folder)
            if left:
                violation(f"processes still run: {left}")
                for pid in left:
                    send(pid, signal.SIGKILL)
            t.out.close()
            if t.pipe:
                t.pipe.close()
            if os.path.exists(os.path.join(folder, "ballast")):
                os.remove(os.path.join(folder, "ballast"))
            checkpoints = os.path.join(folder, "run", "checkpoints")
            if any(name.startswith("step-") for name in os.listdir(checkpoints)):
                verified = subprocess.run([PROGRAM, "checkpoint", "verify", checkpoints], capture_output=True,
                                          text=True, timeout=VERIFY_TIME)
                if verified.returncode != 0:
                    violation(f"checkpoint verify: exit code {verified.returncode}: {verified.stdout}{verified.stderr}")
                    sound = False
            if not sound:
                break
        if sound:
            with open(os.path.join(folder, "output"), "ab") as out:
                try:
                    code = subprocess.run(command(folder, ranks), stdout=out, stderr=out,
                                          timeout=4 * PATIENCE).returncode
                except subprocess.TimeoutExpired:
                    code = "none: the process hangs"
            if code != 0:
                violation(f"last start: got exit code {code}, want 0")
            elif digest(folder) != clean[ranks]:
                violation("the final checkpoint differs from that of a run without faults")
            runs += 1
        shutil.rmtree(folder)
        print(f"run {number}: {ranks} ranks, {' '.join(history) or 'no fault'}: {'done' if sound else 'ended'}; "
              f"{sum(trials.values())} trials, {len(violations)} violations", flush=True)
    by_fault = ", ".join(f"{name} {n}" for name, n in sorted(trials.items()))
    print(
        f"{runs} runs compared bit for bit, {sum(trials.values())} trials ({by_fault}), {sum(void.values())} void, {len(violations)} violations",
        flush=True)
    return 1 if violations else 0


if __name__ == "__main__":
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 31)
    if os.geteuid() == 0 and "SOAK_ROOT" not in os.environ:
        root = tempfile.mkdtemp(prefix="soak.")
        keep = os.environ.setdefault("SOAK_KEEP", tempfile.mkdtemp(prefix="soak.kept."))
        os.environ["SOAK_ROOT"] = root
        print(f"seed {seed}, runs with violations are kept in {keep}", flush=True)
        mounted = 'mount -t tmpfs -o size=24m soak "$SOAK_ROOT" && exec "$@"'
        code = subprocess.run(["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable, __file__, str(minutes),
                               str(seed)]).returncode
        os.rmdir(root)
        sys.exit(code)
    disks = "SOAK_ROOT" in os.environ
    root = os.environ.get("SOAK_ROOT") or tempfile.mkdtemp(prefix="soak.")
    keep = os.environ.get("SOAK_KEEP") or tempfile.mkdtemp(prefix="soak.kept.")
    if not disks:
        print(f"seed {seed}, runs with violations are kept in {keep}; full disks need root", flush=True)
    sys.exit(soak(root, minutes, seed, disks))
