#!/usr/bin/env python3
"""Prints the list of all software in a container image, as JSON of SPDX 2.3.

    deploy/container/sbom.py CONTEXT VERSION KIND     build.sh calls it; KIND: cpu or cuda

The list has the rows of the release's MANIFEST.tsv (program, libraries, Go modules), the packages of Debian, and NVIDIA's
wheels, with versions, licences and package URLs. SOURCE_DATE_EPOCH is the time of the document, so equal contents give
equal bytes.
"""
import csv
import datetime
import hashlib
import json
import os
import re
import sys
import urllib.parse

CUDA_LICENCE = "LicenseRef-NVIDIA-CUDA-EULA"
PUBLIC_DOMAIN = "LicenseRef-Debian-public-domain"

# Licences of the files that the image has of these packages of Debian. The copyright file of libc6 lists
# further licences of single source files.
DEBIAN_LICENCES = {
    "base-files": "GPL-2.0-or-later",
    "ca-certificates": "MPL-2.0 AND GPL-2.0-or-later",
    "libc6": "LGPL-2.1-or-later AND LGPL-2.0-or-later AND GPL-2.0-or-later WITH GCC-exception-2.0 AND BSD-3-Clause AND ISC",
    "libsharpyuv0": "BSD-3-Clause",
    "libwebp7": "BSD-3-Clause",
    "tzdata": PUBLIC_DOMAIN,
    "zlib1g": "Zlib",
}


def read_text(*parts):
    with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
        return file.read()


def package_of(name, version, licence, purl, comment):
    """Returns a package of the document."""
    return {"name": name, "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", purl.split("?")[0][len("pkg:"):]),
             "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
             "licenseDeclared": licence, "copyrightText": "NOASSERTION", "comment": comment,
             "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]}


def purl_of(kind, name, version, **qualifiers):
    quote = urllib.parse.quote
    pairs = "&".join(f"{key}={quote(value)}" for key, value in sorted(qualifiers.items()))
    return f"pkg:{kind}/{quote(name)}@{quote(version, safe='.~:')}" + (pairs and "?" + pairs)


def of_release(context):
    """Returns the packages of the release: those of its manifest of licences."""
    with open(os.path.join(context, "release/share/doc/hetero-train/licences/MANIFEST.tsv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if not rows:
        sys.exit("sbom: the manifest of the release is empty")
    for row in rows:
        name, version, source = row["name"], row["version"], row["source"]
        if source.startswith("Go module"):
            purl = purl_of("golang", name, version)
        elif built_of := re.match(r"Debian (\d+) source package", source):
            purl = purl_of("deb", "debian/" + name, version, arch="amd64", distro="debian-" + built_of.group(1))
        elif name == "Go":
            purl = purl_of("golang", "stdlib", re.sub(r"^go(version )?", "", version))
        elif source.startswith("npm package"):
            purl = purl_of("npm", name.lower(), version)
        elif name == "hetero-train":
            purl = purl_of("golang", "github.com/hetero-train/hetero-train", version)
        else:
            purl = purl_of("generic", name.lower().replace(" ", "-"), version.replace(" ", "-"))
        yield package_of(name, version, row["licence"], purl, source)


def of_debian(context):
    """Returns the packages of Debian from which the image has files."""
    folder = os.path.join(context, "base/var/lib/dpkg/status.d")
    release = re.search(r'^VERSION_ID="(.*)"', read_text(context, "base/etc/os-release"), re.M).group(1)
    for name in sorted(os.listdir(folder)):
        version = re.search(r"^Version: (.*)", read_text(folder, name), re.M).group(1)
        architecture = re.search(r"^Architecture: (.*)", read_text(folder, name), re.M).group(1)
        purl = purl_of("deb", "debian/" + name, version, arch=architecture, distro="debian-" + release)
        if name not in DEBIAN_LICENCES:
            sys.exit(f"sbom: the licence of package {name} of Debian is not known; add it to DEBIAN_LICENCES")
        yield package_of(name, version, DEBIAN_LICENCES[name], purl, f"Debian package; the texts of its licences are in /usr/share/doc/{name}/copyright")


def of_nvidia(context):
    """Returns NVIDIA's wheels."""
    for wheel in read_text(context, "wheels").split():
        name, version = wheel.split("-")[:2]
        purl = purl_of("pypi", name.replace("_", "-"), version)
        yield package_of(name, version, "LicenseRef-" + name.replace("_", "-"), purl,
                         f"Python wheel {wheel}; its licence is in /usr/share/doc/{name}")


def licence_texts(context, packages):
    """Returns the texts of the licences that SPDX does not list."""
    for name in sorted({p["licenseDeclared"] for p in packages if p["licenseDeclared"].startswith("LicenseRef-")}):
        if name == PUBLIC_DOMAIN:
            folder = os.path.join(context, "base/usr/share/doc/tzdata")
        else:
            folder = (os.path.join(context, "release/share/doc/hetero-train/licences/cuda") if name == CUDA_LICENCE else
                      os.path.join(context, "cuda/usr/share/doc", name[len("LicenseRef-"):].replace("-", "_")))
        text = "\n".join(read_text(folder, file) for file in sorted(os.listdir(folder)))
        yield {"licenseId": name, "name": name[len("LicenseRef-"):], "extractedText": text}


def all_of(packages):
    """Returns the licence of all packages together, as an expression of SPDX."""
    parts = set()
    for package in packages:
        licence = package["licenseDeclared"]
        parts |= {f"({licence})"} if " OR " in licence else set(licence.split(" AND "))
    return " AND ".join(sorted(parts))


def main(context, version, kind):
    packages = list(of_release(context)) + list(of_debian(context))
    if kind == "cuda":
        packages += of_nvidia(context)
    identifiers = [p["SPDXID"] for p in packages]
    twice = sorted({i for i in identifiers if identifiers.count(i) > 1})
    if twice:
        sys.exit("sbom: two packages have one identifier: " + " ".join(twice))
    image = f"hetero-train:{version.replace('+', '-')}-{kind}"
    described = {"name": image, "SPDXID": "SPDXRef-Image", "versionInfo": version, "downloadLocation": "NOASSERTION",
                 "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": all_of(packages),
                 "copyrightText": "NOASSERTION", "primaryPackagePurpose": "CONTAINER"}
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    related = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image")]
    related += [("SPDXRef-Image", "CONTAINS", i) for i in identifiers]
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": image,
        "documentNamespace": f"https://github.com/hetero-train/hetero-train/spdx/{version}-{kind}-{digest[:16]}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: hetero-train-sbom"]},
        "packages": [described] + packages,
        "relationships": [{"spdxElementId": a, "relationshipType": kind_of, "relatedSpdxElement": b}
                          for a, kind_of, b in related],
    }
    texts = list(licence_texts(context, packages))
    if texts:
        document["hasExtractedLicensingInfos"] = texts
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    main(*sys.argv[1:])
