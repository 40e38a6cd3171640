"""AWS_MSK_IAM: tokens that AWS's own signer makes of IAM credentials; MSK takes them as OAUTHBEARER."""

import os
import re
from dataclasses import dataclass

from kquota.errors import InputError, MissingDependency, Unauthorized

_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:api\.)?amazonaws\.")


@dataclass(frozen=True)
class MskIam:
    """The credentials that AWS's tools find: the default ones, a profile's, or the credentials of a role to assume."""

    profile: str | None = None
    role: str | None = None
    session_name: str | None = None

    def __str__(self) -> str:
        return "with AWS IAM"

    def token(self, host: str, timeout_s: float) -> str:
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer
        except ImportError:
            raise MissingDependency(
                "AWS_MSK_IAM needs the package aws-msk-iam-sasl-signer-python", extra="msk"
            ) from None
        region = self._region(host)
        try:
            if self.role is not None:
                names = [] if self.session_name is None else [self.session_name]
                made = signer.generate_auth_token_from_role_arn(region, self.role, *names)
            elif self.profile is not None:
                made = signer.generate_auth_token_from_profile(region, self.profile)
            else:
                made = signer.generate_auth_token(region)
        except AttributeError:
            # What the signer makes of no credentials at all.
            raise Unauthorized("there are no AWS credentials", hint="aws configure, or AWS_PROFILE") from None
        except Exception as error:
            # Those of botocore have no class in common but this one.
            raise Unauthorized(f"AWS makes no token: {' '.join(str(error).split())}") from None
        token: str = made[0]
        return token

    @staticmethod
    def _region(host: str) -> str:
        """That of the broker by its name, else that of the environment, as AWS's own client."""
        match = _REGION.search(host)
        region = match[1] if match else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not region:
            raise InputError(f"the AWS region of {host} is not known", hint="set AWS_REGION")
        return region
