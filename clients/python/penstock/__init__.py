"""Client and worker of Penstock: https://github.com/penstock-mq/penstock"""

from . import api
from .client import Client, Error, Options, Permit, RefusedError, UnavailableError, batch_job
from .job import Again, Codec, Handler, Job, Permanent, RetryAfter, Unavailable
from .target import target
from .worker import Worker

__all__ = [
    "Again", "Client", "Codec", "Error", "Handler", "Job", "Options", "Permanent", "Permit", "RefusedError", "RetryAfter",
    "Unavailable", "UnavailableError", "Worker", "api", "batch_job", "target",
]
