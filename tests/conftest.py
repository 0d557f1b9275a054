"""Rules for every test: warnings are errors, nothing is broadcast or promoted silently, eight CPU devices, any base seed."""

import signal
import sys
import threading
import zlib
from pathlib import Path

import jax
import pytest

sys.path.append(str(Path(__file__).parents[1]))  # for `benchmarks`; `ppl` is the installed one
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell turns Ctrl-C off for what runs in its background
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_addoption(parser):
    parser.addoption("--base-seed", type=int, default=0, help="seed from which every random test derives its own")


def pytest_configure(config):
    config.addinivalue_line("markers", "false_alarm(rate): how often this random test fails by chance, per run")
    config.addinivalue_line("markers", "slow: left out of the fast pass")


@pytest.fixture
def seed(request):
    """An integer that differs for each test and base seed."""
    return (zlib.crc32(request.node.nodeid.encode()) + 7919 * request.config.getoption("--base-seed")) % 2**31


@pytest.fixture
def key(seed):
    """A jax key that differs for each test and base seed."""
    return jax.random.key(seed)


@pytest.fixture
def x64():
    """Double precision for one test."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
