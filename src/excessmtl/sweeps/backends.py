"""Where the runs of a sweep are computed: processes of this machine, or a cluster behind joblib."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from joblib import parallel_config, register_parallel_backend


def _on_ray() -> AbstractContextManager[Any]:
    """Of RAY_ADDRESS, or one started here."""
    backend = importlib.import_module("ray.util.joblib.ray_backend").RayBackend
    # Joblib takes it for a pool of multiprocessing, whose results it will not hand out one by one: such a pool may
    # hang if nobody waits for the rest. A sweep always takes or closes them.
    streaming = type("StreamingRayBackend", (backend,), {"supports_return_generator": True})
    register_parallel_backend("ray", streaming)
    return importlib.import_module("ray").init(ignore_reinit_error=True, log_to_driver=False)  # type: ignore[no-any-return]


def _on_dask() -> AbstractContextManager[Any]:
    """Of DASK_SCHEDULER_ADDRESS, or one started here; a run at a time in each process."""
    client: AbstractContextManager[Any] = importlib.import_module("dask.distributed").Client(threads_per_worker=1)
    return client


_PREPARE: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "loky": nullcontext,
    "ray": _on_ray,
    "dask": _on_dask,
}
BACKENDS = tuple(_PREPARE)


@contextmanager
def using_backend(name: str) -> Iterator[None]:
    """Makes joblib compute there for the block."""
    if name not in _PREPARE:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, found {name!r}")
    try:
        cluster = _PREPARE[name]()
    except ModuleNotFoundError as error:
        raise ValueError(
            f"backend {name!r} needs the package {error.name}; install it with: pip install 'excessmtl[{name}]'"
        ) from error
    with cluster, parallel_config(backend=name):
        yield
