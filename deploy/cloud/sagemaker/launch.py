#!/usr/bin/env python3
"""Starts a training job of SageMaker on instance groups of unlike types. docs/cloud.md explains it.

    deploy/cloud/sagemaker/launch.py --name resnet50-1 --image IMAGE --role ROLE --bucket BUCKET \\
        --group gpus:ml.g5.12xlarge:1 --group cpus:ml.c5.9xlarge:2 --token s3://BUCKET/secrets/token \\
        --channel training=s3://BUCKET/imagenet --spot -- -c /configs/resnet50.toml --set data.path=/opt/ml/input/data/training

The arguments after -- are those of hetero-train train. The script needs boto3 and its credentials; with --print it only
prints the request (CreateTrainingJob), and needs neither.
"""
import argparse
import json
import re
import sys

# Limits of SageMaker.
MOST_ARGUMENTS = 100  # of ContainerArguments
MOST_GROUPS = 5
MOST_CHANNELS = 20
JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")


def group(text):
    match = re.fullmatch(r"([^:]+):(ml\.[a-z0-9-]+\.[a-z0-9]+):([1-9][0-9]*)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"got {text!r}, want NAME:TYPE:COUNT, such as gpus:ml.g5.12xlarge:1")
    return {"InstanceGroupName": match[1], "InstanceType": match[2], "InstanceCount": int(match[3])}


def number(text):
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"got {text!r}, want a whole number above 0")
    return int(text)


def address(text):
    if not re.fullmatch(r"s3://[^/]+/.+", text):
        raise argparse.ArgumentTypeError(f"got {text!r}, want s3://BUCKET/NAME")
    return text


def data(text):
    name, uri = pair(text)
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise argparse.ArgumentTypeError(f"got the channel {name!r}, want letters, digits, points, hyphens and underscores")
    return name, address(uri)


def twice(names):
    return next((name for name in names if list(names).count(name) > 1), None)


def pair(text):
    name, found, value = text.partition("=")
    if not found or not name:
        raise argparse.ArgumentTypeError(f"got {text!r}, want NAME=VALUE")
    return name, value


def channel(name, uri):
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": "File"}


def request(o):
    """Returns the arguments of create_training_job."""
    channels = [channel(name, uri) for name, uri in o.channel]
    if o.token:  # --sagemaker reads this channel
        channels.append(channel("token", o.token))
    r = {
        "TrainingJobName": o.name,
        "RoleArn": o.role,
        "AlgorithmSpecification": {
            "TrainingImage": o.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["hetero-train", "train", "--sagemaker"],
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{o.bucket}/output"},
        # SageMaker copies this folder to the bucket while the job runs, and back when a spot job continues.
        "CheckpointConfig": {"S3Uri": f"s3://{o.bucket}/checkpoints/{o.run or o.name}", "LocalPath": "/opt/ml/checkpoints"},
        "ResourceConfig": {"InstanceGroups": o.group, "VolumeSizeInGB": o.volume},
        "StoppingCondition": {"MaxRuntimeInSeconds": o.hours * 3600},
    }
    if o.arguments:
        r["AlgorithmSpecification"]["ContainerArguments"] = o.arguments
    if channels:
        r["InputDataConfig"] = channels
    if o.hyperparameter:
        r["HyperParameters"] = dict(o.hyperparameter)
    if o.spot:
        r["EnableManagedSpotTraining"] = True
        r["StoppingCondition"]["MaxWaitTimeInSeconds"] = o.wait_hours * 3600
    if o.subnet:
        r["VpcConfig"] = {"Subnets": o.subnet, "SecurityGroupIds": o.security_group}
    return r


def options(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--name", required=True, help="name of the job, new for each job")
    p.add_argument("--run", help="name of the folder of checkpoints; a later job with the same name continues the run (default: --name)")
    p.add_argument("--image", required=True, help="image with hetero-train in a registry of ECR")
    p.add_argument("--role", required=True, help="ARN of the role of the job")
    p.add_argument("--bucket", required=True, help="bucket for checkpoints and output")
    p.add_argument("--group", required=True, action="append", type=group, metavar="NAME:TYPE:COUNT", help="instance group; repeatable, up to five")
    p.add_argument("--token", type=address, metavar="s3://…", help="object with the token of the run; needed with several instances. No other object may have a name that begins with this one")
    p.add_argument("--channel", action="append", default=[], type=data, metavar="NAME=s3://…", help="data in /opt/ml/input/data/NAME")
    p.add_argument("--hyperparameter", action="append", default=[], type=pair, metavar="KEY=VALUE", help="key of the configuration; tuning jobs set these")
    p.add_argument("--spot", action="store_true", help="use spot instances, and continue after an interruption")
    p.add_argument("--hours", type=number, default=24, help="longest training time")
    p.add_argument("--wait-hours", type=number, default=48, help="longest training time with the waits for spot instances")
    p.add_argument("--volume", type=number, default=100, help="disk of each instance, in GB")
    p.add_argument("--subnet", action="append", default=[], help="subnet of a VPC; repeatable")
    p.add_argument("--security-group", action="append", default=[], help="security group of a VPC; repeatable")
    p.add_argument("--print", action="store_true", help="print the request, and start nothing")
    p.add_argument("arguments", nargs="*", help="arguments of hetero-train train, after --")
    o = p.parse_args(argv)
    if not JOB_NAME.fullmatch(o.name):
        p.error(f"--name: got {o.name!r}, want at most 63 letters, digits and hyphens between them")
    if len(o.group) > MOST_GROUPS:
        p.error(f"--group: got {len(o.group)}, want at most {MOST_GROUPS}")
    channels = [name for name, _ in o.channel] + (["token"] if o.token else [])
    if len(channels) > MOST_CHANNELS:
        p.error(f"--channel: got {len(channels)}, with that of --token, want at most {MOST_CHANNELS}")
    for option, names in (("--group", [g["InstanceGroupName"] for g in o.group]), ("--channel", channels),
                          ("--hyperparameter", [name for name, _ in o.hyperparameter])):
        if name := twice(names):
            p.error(f"{option}: got {name!r} twice" + (", once from --token" if name == "token" and o.token else ""))
    instances = sum(g["InstanceCount"] for g in o.group)
    if instances > 1 and not o.token:
        p.error(f"--token: not given, want an object with a token, because {instances} instances train together")
    if o.spot and o.wait_hours < o.hours:
        p.error(f"--wait-hours: got {o.wait_hours}, want at least --hours, {o.hours}")
    if bool(o.subnet) != bool(o.security_group):
        p.error("--subnet and --security-group belong together")
    if len(o.arguments) > MOST_ARGUMENTS:
        p.error(f"got {len(o.arguments)} arguments of hetero-train, want at most {MOST_ARGUMENTS}: put them into a file for -c")
    return o


def main(argv):
    o = options(argv)
    r = request(o)
    if o.print:
        json.dump(r, sys.stdout, indent=2)
        print()
        return
    import boto3

    print(boto3.client("sagemaker").create_training_job(**r)["TrainingJobArn"])


if __name__ == "__main__":
    main(sys.argv[1:])
