#!/usr/bin/env python3
"""Starts a training job of SageMaker on instance groups of unlike types. docs/cloud.md explains it.

    deploy/cloud/sagemaker/launch.py --name resnet50-1 --image IMAGE --role ARN --bucket BUCKET \\
        --group gpus:ml.g5.12xlarge:1 --group cpus:ml.c5.9xlarge:2 --token s3://BUCKET/secrets/token \\
        --channel training=s3://BUCKET/imagenet --spot -- -c /configs/resnet50.toml --set data.path=/opt/ml/input/data/training

The arguments after -- are those of hetero-train train. The script needs boto3, its credentials and a region; with --print
it only prints the request (CreateTrainingJob), and needs none of them.

Exit codes: 0 the job is created, or the request printed; 1 SageMaker refused the request, or did not answer; 2 arguments,
or boto3, its credentials or the region are missing.
"""
import argparse
import json
import re
import sys

# Limits of CreateTrainingJob, from the service model of botocore and the API reference of SageMaker.
MOST_NAME = 63  # of the job
MOST_ARGUMENTS = 100  # of ContainerArguments
MOST_ARGUMENT = 256  # characters of one
MOST_GROUPS = 5
MOST_CHANNELS = 20
MOST_PARAMETERS = 100
MOST_PARAMETER_NAME, MOST_PARAMETER = 256, 2500  # characters
MOST_URI = 1024
MOST_IMAGE = 255
MOST_HOURS = 28 * 24
MOST_SUBNETS, MOST_SECURITY_GROUPS = 16, 5
MOST_INTEGER = 2**31 - 1
# Capacity for spot instances may come only after a day or two, also for a short job.
USUAL_WAIT_HOURS = 48
MOST_VOLUME = 16384  # GB of a gp2 volume, which SageMaker uses
JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/?[a-zA-Z_0-9+=,.@/-]+")
SHORTEST_ROLE, LONGEST_ROLE = 20, 2048
# Buckets of today have lower-case letters only, and 63 characters at most; some old ones differ.
BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]"


def refused(text, want):
    return argparse.ArgumentTypeError(f"got {text!r}, want {want}")


def matching(pattern, most, want):
    """Returns a type of arguments that match a pattern."""

    def check(text):
        if len(text) > most or not re.fullmatch(pattern, text):
            raise refused(text, want)
        return text

    return check


def group(text):
    match = re.fullmatch(r"([^:\n]{1,64}):(ml\.[a-z0-9-]+\.[a-z0-9]+):([1-9][0-9]{0,8})", text)
    if not match:
        raise refused(text, "NAME:TYPE:COUNT, such as gpus:ml.g5.12xlarge:1, with a name of at most 64 characters")
    return {"InstanceGroupName": match[1], "InstanceType": match[2], "InstanceCount": int(match[3])}


def number(most):
    def check(text):
        if not re.fullmatch(r"[1-9][0-9]{0,9}", text) or int(text) > most:
            raise refused(text, f"a whole number from 1 to {most}")
        return int(text)

    return check


def job_name(text):
    if len(text) > MOST_NAME or not JOB_NAME.fullmatch(text):
        raise refused(text, f"at most {MOST_NAME} letters, digits, and hyphens between them")
    return text


def role(text):
    if not SHORTEST_ROLE <= len(text) <= LONGEST_ROLE or not ROLE.fullmatch(text):
        raise refused(text, "the ARN of a role, such as arn:aws:iam::123456789012:role/NAME")
    return text


def folder(text):
    """Returns the name of a folder of S3, which may have folders above it."""
    if len(text) > MOST_URI or not re.fullmatch(r"[^\x00-\x1f\x7f]+", text) or {"", ".", ".."} & set(text.split("/")):
        raise refused(text, "a name without control characters, or several with / between them, other than . and ..")
    return text


def bucket(text):
    """Returns the name of a bucket, or of a folder in it."""
    name, slash, path = text.partition("/")
    if not re.fullmatch(BUCKET, name):
        raise refused(text, "the name of a bucket without s3://, or BUCKET/FOLDER")
    if slash:
        folder(path)
    return text


def stored(text):
    """Returns an address of S3: of a bucket, or of the objects whose names begin with the rest."""
    if len(text) > MOST_URI or not re.fullmatch(rf"s3://{BUCKET}(/.*)?", text):
        raise refused(text, f"s3://BUCKET/NAME with at most {MOST_URI} characters")
    return text


def stored_object(text):
    stored(text)
    if not re.fullmatch(r"s3://[^/]+/.*[^/]", text):
        raise refused(text, "the address of one object, s3://BUCKET/NAME")
    return text


def data(text):
    name, uri = pair(text)
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise argparse.ArgumentTypeError(
            f"got the channel {name!r}, want at most 64 letters, digits, points, hyphens and underscores")
    return name, stored(uri)


def hyperparameter(text):
    name, value = pair(text)
    if "." not in name and not name.startswith(("sagemaker_", "_tuning_")):
        raise argparse.ArgumentTypeError(
            f"got the name {name!r}, want a key of the configuration, such as optimizer.lr: the job would refuse it")
    for what, characters, most in (("a name", name, MOST_PARAMETER_NAME), ("a value", value, MOST_PARAMETER)):
        if len(characters) > most or "\n" in characters:
            raise argparse.ArgumentTypeError(
                f"{name[:40]}: got {what} of {len(characters)} characters, want at most {most}, without line breaks")
    return name, value


def twice(names):
    return next((name for name in names if list(names).count(name) > 1), None)


def pair(text):
    name, found, value = text.partition("=")
    if not found or not name:
        raise refused(text, "NAME=VALUE")
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
        "CheckpointConfig": {"S3Uri": checkpoints(o), "LocalPath": "/opt/ml/checkpoints"},
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


def checkpoints(o):
    return f"s3://{o.bucket}/checkpoints/{o.run or o.name}"


class Once(argparse.Action):
    """An option with one value. argparse itself uses the last value without a word."""

    def __call__(self, parser, namespace, value, option_string=None):
        given = namespace.__dict__.setdefault("given", set())
        if self.dest in given:
            raise argparse.ArgumentError(self, f"given twice: the second value is {value!r}, want one value")
        given.add(self.dest)
        setattr(namespace, self.dest, value)


def parser():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                usage="%(prog)s [OPTION...] -- [ARGUMENT of hetero-train train...]", allow_abbrev=False)
    p.register("action", None, Once)
    p.add_argument("--name", required=True, type=job_name, help="name of the job, new for each job")
    p.add_argument("--run", type=folder,
                   help="name of the folder of checkpoints; a later job with the same name continues the run (default: --name)")
    p.add_argument("--image", required=True, type=matching(r"\S+", MOST_IMAGE, f"at most {MOST_IMAGE} characters without spaces"),
                   help="image with hetero-train in a registry of ECR")
    p.add_argument("--role", required=True, type=role, help="ARN of the role of the job")
    p.add_argument("--bucket", required=True, type=bucket, metavar="BUCKET[/FOLDER]",
                   help="bucket, or folder of a bucket, for checkpoints and output")
    p.add_argument("--region", type=matching(r"[a-z0-9-]+", 63, "the name of a region, such as eu-central-1"),
                   help="region of the job (default: AWS_DEFAULT_REGION, or that of the profile)")
    p.add_argument("--group", required=True, action="append", type=group, metavar="NAME:TYPE:COUNT", help="instance group; repeatable, up to five")
    p.add_argument("--token", type=stored_object, metavar="s3://…", help="object with the token of the run; needed with several instances. No other object may have a name that begins with this one")
    p.add_argument("--channel", action="append", default=[], type=data, metavar="NAME=s3://…", help="data in /opt/ml/input/data/NAME")
    p.add_argument("--hyperparameter", action="append", default=[], type=hyperparameter, metavar="KEY=VALUE", help="key of the configuration; tuning jobs set these")
    p.add_argument("--spot", action="store_true", help="use spot instances, and continue after an interruption")
    p.add_argument("--hours", type=number(MOST_HOURS), default=24, help="longest training time (default: 24)")
    p.add_argument("--wait-hours", type=number(MOST_INTEGER // 3600), help="with --spot: longest training time with the waits for spot instances (default: twice --hours, at least 48)")
    p.add_argument("--volume", type=number(MOST_VOLUME), default=100, help="disk of each instance, in GB (default: 100)")
    identifier = matching(r"[-0-9a-zA-Z]+", 32, "an identifier of at most 32 letters, digits and hyphens")
    p.add_argument("--subnet", action="append", default=[], type=identifier, help="subnet of a VPC; repeatable")
    p.add_argument("--security-group", action="append", default=[], type=identifier, help="security group of a VPC; repeatable")
    p.add_argument("--print", action="store_true", help="print the request, and start nothing")
    return p


def options(argv):
    p = parser()
    # argparse would also take words before --.
    split = argv.index("--") if "--" in argv else len(argv)
    o = p.parse_args(argv[:split])
    o.arguments = argv[split + 1:]
    channels = [name for name, _ in o.channel] + (["token"] if o.token else [])
    for option, values, most in (("--group", o.group, MOST_GROUPS),
                                 ("--hyperparameter", o.hyperparameter, MOST_PARAMETERS),
                                 ("--subnet", o.subnet, MOST_SUBNETS),
                                 ("--security-group", o.security_group, MOST_SECURITY_GROUPS)):
        if len(values) > most:
            p.error(f"{option}: given {len(values)} times, want at most {most}")
    if len(channels) > MOST_CHANNELS:
        p.error(f"--channel: got {len(channels)}, with that of --token, want at most {MOST_CHANNELS}")
    for option, names in (("--group", [g["InstanceGroupName"] for g in o.group]), ("--channel", channels),
                          ("--hyperparameter", [name for name, _ in o.hyperparameter])):
        if name := twice(names):
            p.error(f"{option}: got {name!r} twice" + (", once from --token" if name == "token" and o.token else "")
                    + ", want each name once")
    instances = sum(g["InstanceCount"] for g in o.group)
    if instances > 1 and "token" not in channels:
        p.error(f"--token: not given, want an object with a token, because {instances} instances train together")
    if o.wait_hours and not o.spot:
        p.error(f"--wait-hours: got {o.wait_hours} without --spot, want both or none: only spot jobs wait")
    if not o.wait_hours:
        o.wait_hours = max(USUAL_WAIT_HOURS, 2 * o.hours)
    if o.wait_hours < o.hours:
        p.error(f"--wait-hours: got {o.wait_hours}, want at least --hours, {o.hours}")
    if bool(o.subnet) != bool(o.security_group):
        p.error(f"--subnet and --security-group: given {len(o.subnet)} and {len(o.security_group)} times, want both or none")
    if len(checkpoints(o)) > MOST_URI:
        p.error(f"--bucket, --run: got an address of checkpoints of {len(checkpoints(o))} characters, want at most {MOST_URI}")
    if len(o.arguments) > MOST_ARGUMENTS:
        p.error(f"got {len(o.arguments)} arguments of hetero-train, want at most {MOST_ARGUMENTS}: put them into a file for -c")
    for argument in o.arguments:
        if len(argument) > MOST_ARGUMENT or "\n" in argument:
            p.error(f"got an argument of hetero-train of {len(argument)} characters, {argument[:40]!r}…, want at most "
                    f"{MOST_ARGUMENT}, without line breaks: put it into a file for -c, or use --hyperparameter")
    return o


def fail(code, text):
    print(f"launch.py: {text}", file=sys.stderr)
    sys.exit(code)


# Exceptions of botocore; old versions lack some of them.
FAULTS_OF_SETTINGS = (
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound", "InvalidRegionError",
    "InvalidConfigError", "ConfigParseError", "ConfigNotFound", "SSOError", "LoginError", "TokenRetrievalError")


def create(r, region):
    """Starts the job and returns its ARN."""
    try:
        import boto3
        from botocore import exceptions
    except ImportError as e:
        fail(2, f"cannot import boto3: {e}: install it (pip install boto3), or use --print")
    try:
        return boto3.client("sagemaker", region_name=region).create_training_job(**r)["TrainingJobArn"]
    except exceptions.NoRegionError:
        fail(2, "the region is not set: use --region, set AWS_DEFAULT_REGION, or write region to ~/.aws/config")
    except tuple(getattr(exceptions, name) for name in FAULTS_OF_SETTINGS if hasattr(exceptions, name)) as e:
        fail(2, f"settings of AWS: {e}")
    except exceptions.ParamValidationError as e:
        fail(2, f"arguments: {'; '.join(str(e).splitlines())}")
    except (exceptions.BotoCoreError, exceptions.ClientError) as e:
        fail(1, f"SageMaker did not start the job {r['TrainingJobName']}: {e}")


def main(argv):
    o = options(argv)
    r = request(o)
    if o.print:
        json.dump(r, sys.stdout, indent=2)
        print()
        return
    print(create(r, o.region))


if __name__ == "__main__":
    main(sys.argv[1:])
