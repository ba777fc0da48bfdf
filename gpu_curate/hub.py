"""Whether the Hugging Face hub answers, asked once and with a limit: its library goes on asking for half a minute.

What needs a package of the hub says so itself; here `huggingface_hub` is there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from gpu_curate.errors import one_line

SECONDS = 8.0  # to an answer; more than a slow proxy takes


def within(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """`function(...)`, for at most SECONDS: a name server that never answers has no limit of its own.

    Raises: TimeoutError; what `function` raises.
    """
    result: list[Any] = []

    def call() -> None:
        try:
            result.append((function(*args, **options), None))
        except BaseException as e:  # handed over to the caller
            result.append((None, e))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not result:
        raise TimeoutError(f"no answer within {SECONDS:.0f} s")
    value, error = result[0]
    if error is not None:
        raise error
    return value


def unreachable(name: str, kind: str, token: str | None = None) -> str | None:
    """Why the hub cannot be asked for a repository; None if it answers, be it that there is none of that name.

    Args:
        kind: model or dataset.
    """
    import huggingface_hub
    from huggingface_hub import errors

    try:
        within(huggingface_hub.HfApi(token=token).repo_info, name, repo_type=kind, timeout=SECONDS)
    except (errors.HfHubHTTPError, errors.HFValidationError):
        return None  # it has answered: what is wrong the call itself will say
    except Exception as e:  # several libraries' errors: offline, no route, a proxy
        return f"{type(e).__name__}: {one_line(e, 200)}"
    return None


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Inside, the hub's library looks into its cache alone."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
