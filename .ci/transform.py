"""Prints template.yaml as AWS::Serverless makes it, as JSON, without an account.

Usage: python3 .ci/transform.py template.yaml   (needs the package aws-sam-translator)
"""

import json
import os
import sys

# The transform asks boto3 for a region only to know its partition.
os.environ.setdefault("AWS_DEFAULT_REGION", "eu-central-1")

from samtranslator.translator.managed_policy_translator import ManagedPolicyLoader  # noqa: E402
from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402


class NoPolicies(ManagedPolicyLoader):
    """The template names no policy of AWS's by a short name, so none has to be looked up."""

    def __init__(self):
        super().__init__(iam_client=None)

    def load(self):
        return {}


def main(path):
    with open(path, encoding="utf-8") as source:
        template = yaml_parse(source.read())
    for resource in template["Resources"].values():
        # CodeUri is what sam package would have put there.
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = "s3://bucket/key"
    template["Globals"]["Function"].pop("CodeUri")
    json.dump(transform(template, {}, NoPolicies()), sys.stdout, indent=1, sort_keys=True)


main(sys.argv[1])
