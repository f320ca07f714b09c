"""The random streams: exact whole numbers, the right keystream, and never the same bytes twice."""

from __future__ import annotations

import copy
import ctypes
import itertools
import multiprocessing
import os
import pickle
import threading
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.entropy import Entropy, Keystream, Simulation, draw_token, uniform_below
from tacit.errors import BadInput, EntropyMisuse
from tacit.kernels.normals import BLOCK

Below = Callable[[int, Callable[[int], bytes | bytearray]], int]


class Again(Exception):
    """The sampler asked for a second draw."""


def draws_of(*draws: bytes) -> Callable[[int], bytes]:
    """Gives these draws, one after another, and then refuses."""
    remaining = iter(draws)

    def take(size: int) -> bytes:
        drawn = next(remaining, None)
        if drawn is None:
            raise Again
        assert size == len(drawn)
        return drawn

    return take


def outcomes(n: int, below: Below) -> tuple[Counter[int], int]:
    """What each possible first draw becomes, and how many of them lead to another draw."""
    size = -(-(n - 1).bit_length() // 8)
    counts: Counter[int] = Counter()
    again = 0
    for drawn in itertools.product(range(256), repeat=size):
        try:
            counts[below(n, draws_of(bytes(drawn)))] += 1
        except Again:
            again += 1
    return counts, again


def is_uniform(n: int, below: Below) -> bool:
    counts, again = outcomes(n, below)
    return set(counts) == set(range(n)) and len(set(counts.values())) == 1 and again < sum(counts.values())


def by_remainder(n: int, take: Callable[[int], bytes | bytearray]) -> int:
    return int.from_bytes(take(-(-(n - 1).bit_length() // 8)), "little") % n


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 100, 128, 129, 255, 256, 257, 1000, 40_000, 65_535, 65_536])
def test_every_number_below_n_has_the_same_number_of_draws(n: int) -> None:
    assert is_uniform(n, uniform_below)


@pytest.mark.parametrize("n", [3, 100, 129, 1000])
def test_the_remainder_of_a_draw_is_caught_as_uneven(n: int) -> None:
    assert not is_uniform(n, by_remainder)


@pytest.mark.parametrize("n", [2**64, 2**64 + 1, 2**200 + 12345])
def test_large_bounds_accept_all_below_and_refuse_all_else(n: int) -> None:
    bits = (n - 1).bit_length()
    size = -(-bits // 8)
    for number in (0, 1, n // 2, n - 2, n - 1):
        drawn = (number << (8 * size - bits)).to_bytes(size, "little")
        assert uniform_below(n, draws_of(drawn)) == number
    if n < 2**bits:
        over = (n << (8 * size - bits)).to_bytes(size, "little")
        assert uniform_below(n, draws_of(over, bytes(size))) == 0


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3", None, float("nan")])
def test_a_bound_that_is_no_count_is_refused(n: int) -> None:
    with pytest.raises(BadInput, match="expected n"):
        uniform_below(n, lambda count: bytes(count))


def blocks(key: bytes, count: int) -> bytes:
    """Counter mode by hand: the block cipher applied to 0, 1, 2, ..."""
    block_cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    return b"".join(block_cipher.update(counter.to_bytes(16, "big")) for counter in range(count))


def test_keystream_is_aes_of_a_counter() -> None:
    key = bytes(range(32))
    target = bytearray(16 * 300_000 + 5)
    Keystream(lambda: key).fill(target)
    expected = blocks(key, 2000)
    assert target[: len(expected)] == expected
    last = len(target) // 16
    block_cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    assert target[-5:] == block_cipher.update(last.to_bytes(16, "big"))[:5]


def test_keystream_changes_its_key_on_time_whatever_the_draws() -> None:
    keys = [bytes([number]) * 32 for number in range(4)]
    expected = b"".join(blocks(key, 3)[:40] for key in keys)
    for sizes in ([160], [1] * 160, [39, 2, 79, 40], [40, 40, 80]):
        remaining = iter(keys)
        stream = Keystream(lambda remaining=remaining: next(remaining), rekey_after=40)  # type: ignore[misc]
        drawn = b""
        for size in sizes:
            target = bytearray(size)
            stream.fill(target)
            drawn += target
        assert drawn == expected


def test_simulation_golden() -> None:
    assert Simulation(1).bytes(16).hex() == "d67e51708d1b027c58a672fe5e3eeafc"
    assert Simulation("day one").words(2).tolist() == [4461402514047395192, 6767270540537914890]


def test_simulation_is_one_stream_however_it_is_cut() -> None:
    whole = Simulation(7).bytes(100_000)
    cut = Simulation(7)
    assert cut.bytes(3) + cut.bytes(50_001) + cut.bytes(49_996) == whole
    assert Simulation(7).words(12_500).astype("<u8").tobytes() == whole


def test_every_bit_of_a_seed_counts() -> None:
    seeds: list[int | str] = [0, 1, -1, 1 + 2**32, 1 + 2**64, 1 + 2**5000, "1", "", "whole 1"]
    assert len({Simulation(seed).bytes(16) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("seed", [True, 1.0, None, b"1"])
def test_a_seed_is_a_whole_number_or_a_text(seed: int) -> None:
    with pytest.raises(BadInput, match="expected a seed"):
        Simulation(seed)


def test_only_entropy_is_fit_for_release() -> None:
    assert Entropy().fit_for_release
    assert not Simulation(1).fit_for_release


def in_child(draw: Callable[[], bytes], fork: Callable[[], int] = os.fork) -> bytes:
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.write(writing, draw())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        given = pipe.read()
    os.waitpid(child, 0)
    return given


def windows(given: bytes) -> set[bytes]:
    """Every 8 bytes in a row: streams that overlap anywhere share some."""
    return {given[start : start + 8] for start in range(len(given) - 7)}


@pytest.mark.parametrize("used", [0, 1, 1000, 65_000])
@pytest.mark.parametrize("size", [64, 20_000])
def test_children_draw_from_streams_of_their_own(used: int, size: int) -> None:
    entropy = Entropy()
    for _ in range(used):
        entropy.bytes(1)
    first = in_child(lambda: entropy.bytes(size))
    second = in_child(lambda: entropy.bytes(size))
    parent = entropy.bytes(size)
    assert len(first) == len(second) == len(parent) == size
    assert not windows(first) & windows(second)
    assert not windows(first) & windows(parent)
    assert not windows(second) & windows(parent)


def test_a_child_forgets_the_buffer_before_it_draws() -> None:
    entropy = Entropy()
    entropy.bytes(8)
    assert any(entropy._buffer)
    assert not any(in_child(lambda: bytes(entropy._buffer)))


def test_a_fork_that_python_does_not_see_is_noticed_too() -> None:
    entropy = Entropy()
    entropy.bytes(1)
    raw_fork = ctypes.PyDLL(None).fork
    child = in_child(lambda: entropy.bytes(64), fork=raw_fork)
    assert len(child) == 64
    assert not windows(child) & windows(entropy.bytes(64))


def test_a_fork_while_another_thread_draws_does_not_hang_the_child() -> None:
    entropy = Entropy()
    with entropy._lock:  # as another thread would hold it at the moment of the fork
        assert len(in_child(lambda: entropy.bytes(8))) == 8


def _draw_into(results: multiprocessing.SimpleQueue[bytes], entropy: Entropy) -> None:
    results.put(entropy.bytes(64))


def test_multiprocessing_workers_draw_from_streams_of_their_own() -> None:
    entropy = Entropy()
    entropy.bytes(10)
    context = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[bytes] = context.SimpleQueue()
    workers = [context.Process(target=_draw_into, args=(results, entropy)) for _ in range(3)]
    for worker in workers:
        worker.start()
    drawn = [results.get() for _ in workers] + [entropy.bytes(64)]
    for worker in workers:
        worker.join()
    assert not any(windows(a) & windows(b) for a, b in itertools.combinations(drawn, 2))


def test_a_simulation_refuses_to_go_on_in_a_child() -> None:
    simulation = Simulation(1)

    def draw() -> bytes:
        try:
            return simulation.bytes(8)
        except EntropyMisuse as refusal:
            return str(refusal).encode()

    assert b"before a fork" in in_child(draw)
    assert len(simulation.bytes(8)) == 8


@pytest.mark.parametrize("source", [Entropy(), Simulation(3)], ids=["entropy", "simulation"])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_cannot_be_copied_or_stored(
    source: Entropy | Simulation, duplicate: Callable[[object], object]
) -> None:
    for holder in (source, source.words, {"weights": [1.0], "noise": source.normal}):
        if duplicate is copy.copy and holder is not source:
            continue  # a shallow copy of a holder shares the stream, which is allowed
        with pytest.raises(EntropyMisuse, match="copy or store"):
            duplicate(holder)


def test_a_resumed_run_starts_a_fresh_stream() -> None:
    first, resumed = Entropy(), Entropy()
    assert not windows(first.bytes(4096)) & windows(resumed.bytes(4096))


def test_threads_never_get_the_same_words() -> None:
    # By chance, two of n words agree with probability below n^2 / 2^65: 5e-10 here.
    entropy = Entropy()
    drawn: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []

    def draw() -> None:
        for size in (1, 7, 64, 500, 3000):
            for _ in range(4):
                drawn.append(entropy.words(size))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = np.concatenate(drawn)
    assert len(together) == 8 * 4 * 3572
    assert len(np.unique(together)) == len(together)


def test_given_bytes_are_wiped_from_the_buffer() -> None:
    entropy = Entropy()
    given = entropy.bytes(64)
    assert not windows(given) & windows(bytes(entropy._buffer[:4096]))


def test_draws_cross_refills_and_large_draws_without_repeating() -> None:
    entropy = Entropy()
    given = b"".join(entropy.bytes(size) for size in [1000] * 100 + [16_384, 16_385, 70_000, 8])
    assert len(given) == 202_777
    words = np.frombuffer(given[: len(given) // 8 * 8], dtype="<u8")
    assert len(np.unique(words)) == len(words)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normals_come_in_the_shape_and_array_asked_for(dtype: type[np.floating]) -> None:
    entropy = Entropy()
    assert entropy.normal((3, 5), dtype=dtype).shape == (3, 5)
    assert entropy.normal(4, dtype=dtype).dtype == dtype
    assert entropy.normal((0, 2), dtype=dtype).size == 0
    out = np.zeros((7, BLOCK), dtype=dtype)
    assert entropy.normal(out=out) is out
    assert np.count_nonzero(out) == out.size
    assert len(np.unique(out[:, 0])) == 7
    repeated = Simulation(5).normal(BLOCK + 11, dtype=dtype)
    np.testing.assert_array_equal(repeated, Simulation(5).normal(BLOCK + 11, dtype=dtype))


def test_scale_rounds_up_to_the_type_of_the_array() -> None:
    asked = 0.1 + 3e-9  # the nearest float32 is below it
    given = Simulation(1).normal(1000, scale=asked)
    up = np.nextafter(np.float32(asked), np.float32(1))
    assert float(np.float32(asked)) < asked < float(up)
    np.testing.assert_allclose(given, Simulation(1).normal(1000) * up, rtol=2e-7)
    assert np.all(np.abs(given) >= np.abs(Simulation(1).normal(1000, scale=float(np.float32(asked)))))


@pytest.mark.parametrize(
    "scale", [0, -1.0, float("nan"), float("inf"), 1e39, 1e-46, True, "1", None]
)  # fmt: skip
def test_a_scale_that_cannot_be_meant_is_refused(scale: float) -> None:
    with pytest.raises(BadInput, match="expected scale"):
        Entropy().normal(3, scale=scale)


def test_arrays_and_shapes_that_cannot_be_filled_are_refused() -> None:
    entropy = Entropy()
    with pytest.raises(BadInput, match="neither"):
        entropy.normal()
    with pytest.raises(BadInput, match="shape"):
        entropy.normal((2, -1))
    with pytest.raises(BadInput, match="shape"):
        entropy.normal((2, 3), out=np.zeros(5))
    with pytest.raises(BadInput, match="contiguous"):
        entropy.normal(out=np.zeros((4, 4))[:, ::2])
    with pytest.raises(BadInput, match="dtype"):
        entropy.normal(3, dtype=np.int32)
    with pytest.raises(BadInput, match="dtype"):
        entropy.normal(3, dtype="many")
    with pytest.raises(BadInput, match="dtype"):
        entropy.normal(3, dtype=None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="dtype"):
        entropy.normal(out=np.zeros(3, dtype=np.float16))  # type: ignore[arg-type]
    for n in (-1, 1.5, True):
        with pytest.raises(BadInput, match="expected n"):
            entropy.words(n)  # type: ignore[arg-type]


def test_tokens_are_of_their_size_and_never_the_same() -> None:
    tokens = {draw_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(bytes.fromhex(token)) for token in tokens} == {16}
    assert len(bytes.fromhex(draw_token(4))) == 4
