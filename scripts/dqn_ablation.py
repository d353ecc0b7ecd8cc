#!/usr/bin/env python3
"""Trains networks of policy dqn that differ in a few options, and compares them on the same job lists.

    make && nice scripts/dqn_ablation.py FOLDER
    scripts/dqn_ablation.py FOLDER --episodes 15000 --only ours,facts --first 2000 --lists 100

The networks train one after another, each on one CPU, in FOLDER/EPISODES-SEED/NAME. A network that already has all
episodes is not trained again, and a script that was stopped continues. Choose options by the lists of seeds 2000 to
2099 (--first 2000 --lists 100), and report the lists from seed 10000 on, which is the default.

The learning rate falls over --episodes. Exploration and imitation keep the defaults of schedule train, which are meant
for 15,000 episodes. Networks with --alone imitate nothing and have no margin. One --seed compares networks, not
options: several seeds are needed for a conclusion about an option.

stdout: a Markdown table. A ratio above 1 is better than its baseline: gang, or the network "ours". Intervals have 95 %;
p is the signed-rank test of Wilcoxon, corrected for all policies and both baselines by Holm's method.

exit: 0 success; 1 a training or the comparison failed; 2 bad arguments
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = "ours"
# By name: the options of schedule train. "book" is close to the DQN of Mnih et al., with the rate of the
# design of ADLRO.
NETWORKS = {
    BASE: [],
    "no-double": ["--double=false"],
    "no-priorities": ["--prioritised=false"],
    "plain": ["--double=false", "--prioritised=false"],
    "facts": ["--ingested"],
    "similarity": ["--similarity", "1024"],
    "facts-similarity": ["--ingested", "--similarity", "1024"],
    "alone": ["--alone"],
    "alone-facts-similarity": ["--alone", "--ingested", "--similarity", "1024"],
    "book": ["--alone", "--double=false", "--prioritised=false", "--returns", "1", "--learning-rate", "1e-4",
             "--epsilon", "1,0.05,{half}"],
}


def train(a, name):
    """Trains a network, and returns the CPU seconds of all its trainings."""
    folder = a.folder / name
    falling = ["--learning-rate", f"1e-3,1e-5,{a.episodes}"]
    options = [o.format(half=a.episodes // 2) for o in NETWORKS[name]]
    command = [str(a.program), "schedule", "train", "--output", str(folder), "--episodes", str(a.episodes), "--seed",
               str(a.seed), "--threads", "1", "--plots", str(folder / "plots")]
    command += options if "--learning-rate" in options else falling + options
    done = folder / "training.json"
    before = json.loads(done.read_text()) if done.exists() else {"command": None, "cpu_seconds": 0}
    if before["command"] == command:
        return before["cpu_seconds"]
    print(" ".join(command), file=sys.stderr, flush=True)
    child = subprocess.Popen(command, env={**os.environ, "GOMAXPROCS": "1"})
    stop = None
    while True:
        try:
            _, status, used = os.wait4(child.pid, 0)
            break
        except KeyboardInterrupt as err:  # Ctrl-C reaches the child too, which saves its state and ends
            stop = err
    code = os.waitstatus_to_exitcode(status)
    seconds = before["cpu_seconds"] + used.ru_utime + used.ru_stime
    if folder.exists():
        done.write_text(json.dumps({"command": command if code == 0 else None, "cpu_seconds": seconds}))
    if stop:
        raise stop
    if code:
        sys.exit(1)
    return seconds


def compare(a, names):
    """Runs the comparison in the folder of the networks, so that their names are short."""
    policies = ["easy", "gang", "dqn", *(f"dqn:{name}" for name in names)]
    command = [str(a.program), "schedule", "compare", "--policy", ",".join(policies), "--baseline",
               f"gang,dqn:{BASE}" if BASE in names else "gang", "--seed", str(a.first), "--seeds", str(a.lists), "--load",
               str(a.load), "--wait-bound", a.wait_bound, "--json"]
    print(" ".join(command), file=sys.stderr, flush=True)
    run = subprocess.run(command, cwd=a.folder, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(1)
    return json.loads(run.stdout)


def ratio(r):
    if r["p_wilcoxon"] is None:
        return ""
    p = "< 0.0001" if r["p_wilcoxon"] < 1e-4 else f"{r['p_wilcoxon']:.4f}"
    return f"{r['mean']:.3f} ({r['low']:.3f} to {r['high']:.3f}), {p}"


def table(study, seconds):
    print("| Policy | Completion, s | Throughput, jobs/h | Completion x `gang`, p | Throughput x `gang`, p | "
          "Completion x `ours`, p | CPU time of training, s |")
    print("|---|---|---|---|---|---|---|")
    against = {b["baseline"]: {c["policy"]: c for c in b["policies"]} for b in study["against"]}
    for row in study["policies"]:
        policy = row["policy"]
        name = policy.removeprefix("dqn:") if policy != "dqn" else "the built-in network"
        gang = against["gang"][policy]
        ours = against.get(f"dqn:{BASE}", {}).get(policy)
        cells = [f"`{policy}`" if policy in ("easy", "gang") else name, f"{row['completion_s']['mean']:,.0f}",
                 f"{row['throughput_jobs_per_h']['mean']:.2f}"]
        cells += ["", ""] if policy == "gang" else [ratio(gang["completion_ratio"]), ratio(gang["throughput_ratio"])]
        cells += ["" if not ours or policy == f"dqn:{BASE}" else ratio(ours["completion_ratio"]),
                  f"{seconds[name]:.0f}" if name in seconds else ""]
        print("| " + " | ".join(cells) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path, help="folder of the networks")
    p.add_argument("--program", type=pathlib.Path, default=ROOT / "hetero-train")
    p.add_argument("--episodes", type=int, default=4000, help="of each network (%(default)s)")
    p.add_argument("--seed", type=int, default=1, help="of the trainings (%(default)s)")
    p.add_argument("--only", default=",".join(NETWORKS), help="names of networks (all: %(default)s)")
    p.add_argument("--first", type=int, default=10000, help="first seed of the job lists (%(default)s)")
    p.add_argument("--lists", type=int, default=30, help="number of job lists (%(default)s)")
    p.add_argument("--load", type=float, default=0.8, help="of the job lists (%(default)s)")
    p.add_argument("--wait-bound", default="none", help="of gang and dqn (%(default)s)")
    a = p.parse_args()
    names = a.only.split(",")
    if unknown := [n for n in names if n not in NETWORKS]:
        p.error(f"--only: got {', '.join(unknown)}, want some of {', '.join(NETWORKS)}")
    if a.episodes < 2 or a.lists < 2:
        p.error(f"got {a.episodes} episodes and {a.lists} job lists, want at least 2 of each")
    a.folder = a.folder.resolve() / f"{a.episodes}-{a.seed}"  # resume refuses other episodes and seeds
    a.program = a.program.resolve()
    if library := os.environ.get("HETERO_LIB_DIR"):  # compare runs in another folder
        os.environ["HETERO_LIB_DIR"] = os.path.abspath(library)
    if not a.program.exists():
        p.error(f"--program: {a.program} does not exist; run make, or name another program")
    a.folder.mkdir(parents=True, exist_ok=True)
    seconds = {name: train(a, name) for name in names}
    table(compare(a, names), seconds)


if __name__ == "__main__":
    main()
