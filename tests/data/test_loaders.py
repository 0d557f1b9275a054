"""Loaders of the large data sets: from files that the user has, checked; clear words without a network."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from ppl.data import covertype, mnist, movielens, synthetic_ratings
from ppl.errors import DataError

SHARED = Path(os.environ.get("PPL_TEST_DATA", "/work/shared/data"))
needs = {
    name: pytest.mark.skipif(not (SHARED / name / file).exists(), reason=f"no local copy of {name}")
    for name, file in (
        ("mnist", "mnist_train.npz"),
        ("covertype", "covertype.npz"),
        ("movielens", "ml_latest_small.npz"),
    )
}


@needs["mnist"]
def test_mnist_from_a_local_folder():
    data = mnist(SHARED / "mnist")
    assert data["train_images"].shape == (60_000, 28, 28) and data["test_images"].shape == (10_000, 28, 28)
    assert np.bincount(data["test_labels"]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@needs["covertype"]
def test_covertype_from_a_local_folder():
    data = covertype(SHARED / "covertype")
    assert data["X"].shape == (581_012, 54) and data["X"].dtype == np.float32
    assert data["X"][0, :10].tolist() == [2596, 51, 3, 258, 0, 510, 221, 232, 148, 6279] and data["y"][0] == 5
    assert (data["X"][:, 10:14].sum(1) == 1).all() and (data["X"][:, 14:].sum(1) == 1).all()


@needs["movielens"]
def test_movielens_from_a_local_folder():
    data = movielens(SHARED / "movielens")
    assert len(data["titles"]) == len(data["genres"]) == 9_724 and data["titles"][0] == "Toy Story (1995)"
    assert abs(data["stars"].mean() - 3.502) < 1e-3 and np.bincount(data["user"]).max() == 2698


def test_files_in_the_original_format_are_read(tmp_path):
    images = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    head = bytes([0, 0, 8, 3]) + np.array(images.shape, ">i4").tobytes()
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(head + images.tobytes()))
    from ppl.data.mnist import _unpacked

    np.testing.assert_array_equal(_unpacked(path), images)


@pytest.mark.parametrize(
    "load, name",
    [(mnist, "train-images-idx3-ubyte.gz"), (covertype, "covtype.data.gz"), (movielens, "ml-latest-small.zip")],
)
def test_a_wrong_file_or_none_is_refused_by_name(load, name, tmp_path):
    with pytest.raises(DataError, match=f"{name}: there is no file"):
        load(tmp_path)
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(DataError, match="has SHA-256 .* It was not used"):
        load(tmp_path)


def test_without_a_network_the_message_says_where_to_put_the_file(tmp_path, monkeypatch):
    import urllib.request

    def offline(*_, **__):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    for load in (mnist, covertype, movielens):
        with pytest.raises(DataError, match="could not be downloaded from https://.*put the file at .* or pass local="):
            load(folder=tmp_path)


def test_synthetic_ratings_have_the_shape_of_the_real_ones():
    data = synthetic_ratings(users=300, movies=200, ratings=20_000, seed=1)
    assert data["user"].max() == 299 and data["movie"].max() < 200 and abs(len(data["user"]) - 20_000) < 200
    pairs = data["user"].astype(int) * 200 + data["movie"]
    assert len(np.unique(pairs)) == len(pairs)
    assert np.bincount(data["user"], minlength=300).min() >= 20
    shares = np.bincount(data["stars"].astype(int), minlength=6)[1:] / len(pairs)
    np.testing.assert_allclose(shares, np.array([56_174, 107_557, 261_197, 348_971, 226_310]) / 1_000_209, atol=0.01)
