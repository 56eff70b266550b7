"""Appends numbered events to a journal in a bucket until it is killed, and says which are acknowledged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from uuid import uuid4

from phasegate.storage.bucket.client import Bucket, BucketAddress
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.location import Location
from phasegate.storage.rows import NewEvent
from support.record import FEATURE, TS
from support.s3_server import BUCKET, KEYS

endpoint, prefix, name = sys.argv[1:]
bucket = Bucket(BucketAddress(endpoint, BUCKET, prefix, "us-east-1"), KEYS, retry_timeout_s=120)
record = BucketStore(bucket, Location(Path(), Path(), Path()), lambda: str(uuid4()))
for number in range(1_000_000):
    record.append_unconditionally(
        FEATURE, TS, [NewEvent("noted", json.dumps(f"{name}-{number}").encode())]
    )
    print(f"{name}-{number}", flush=True)
