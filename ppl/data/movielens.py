"""Films and who rated them: the small MovieLens set, and a synthetic one of the size of the set with a million ratings."""

import csv
import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np

from ppl.data.fetch import fetch
from ppl.errors import DataError

NAME = "ml-latest-small.zip"
URL = "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip"
SHA256 = "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436"
RATINGS, USERS, MOVIES = 100_836, 610, 9_724


def movielens(local: str | os.PathLike | None = None, folder: str | os.PathLike | None = None) -> dict[str, np.ndarray]:
    """Return the 100,836 ratings of 9,724 films by 610 people of `ml-latest-small`, downloaded once (1 MB).

    Args:
      local: a folder with the original file `ml-latest-small.zip`, or with `ml_latest_small.npz` and `movies.csv.gz`;
        nothing is then downloaded.
      folder: where to keep what is downloaded; by default in the user's cache folder.

    Returns `user`, `movie` [rating] int32, counted from 0 without gaps, `stars` [rating] float32 from 0.5 to 5, `titles` and
    `genres` [movie] as text (genres divided by `|`). GroupLens allows research and no commercial use, and asks for the
    citation: Harper and Konstan (2015), The MovieLens Datasets: History and Context, ACM TiiS 5(4).

    Raises:
      DataError: the file cannot be downloaded, or is not the right one.
    """
    packed = None if local is None else Path(local).expanduser() / "ml_latest_small.npz"
    if packed is not None and packed.is_file():
        with np.load(packed) as stored:
            user, movie = stored["user"].astype(np.int32), stored["movie"].astype(np.int32)
            stars, ids = stored["rating_half_stars"].astype(np.float32) / 2, stored["movie_id"]
        with gzip.open(packed.with_name("movies.csv.gz"), "rt", encoding="utf-8") as file:
            about = _films(file)
    else:
        with zipfile.ZipFile(fetch(NAME, URL, SHA256, folder, local)) as archive:
            with archive.open("ml-latest-small/ratings.csv") as file:
                table = np.loadtxt(io.TextIOWrapper(file), delimiter=",", skiprows=1, usecols=(0, 1, 2))
            with archive.open("ml-latest-small/movies.csv") as file:
                about = _films(io.TextIOWrapper(file, encoding="utf-8"))
        ids, movie = np.unique(table[:, 1].astype(np.int64), return_inverse=True)
        user, movie = table[:, 0].astype(np.int32) - 1, movie.reshape(-1).astype(np.int32)
        stars = table[:, 2].astype(np.float32)
    if (len(user), user.max() + 1, len(ids)) != (RATINGS, USERS, MOVIES):
        raise DataError(f"these are not the ratings of ml-latest-small: there are {len(user)}. They were not used.")
    return {
        "user": user, "movie": movie, "stars": stars,
        "titles": np.array([about[int(i)][0] for i in ids]), "genres": np.array([about[int(i)][1] for i in ids]),
    }  # fmt: skip


def _films(file):
    return {int(row["movieId"]): (row["title"], row["genres"]) for row in csv.DictReader(file)}


def synthetic_ratings(
    users: int = 6040, movies: int = 3706, ratings: int = 1_000_209, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return made-up ratings with the size and the skew of MovieLens 1M, which may be used anywhere.

    Activity of users and popularity of films follow log normal laws; who sees what depends on tastes of rank 8. The truth is
    returned too, so that a fit can be compared with it.

    Args:
      users: how many people.
      movies: how many films.
      ratings: how many ratings, about; at least one each, at least 20 a person where there are enough films.
      seed: of numpy's generator.

    Returns `user`, `movie` [rating] int32 and `stars` [rating] float32 from 1 to 5, and `user_taste`, `movie_taste`.
    """
    rng = np.random.default_rng(seed)
    least = min(20, movies // 2)
    count = least + np.floor(rng.lognormal(np.log(76), 1.14, users) * ratings / 1_000_209 * 6040 / users)
    count = np.minimum(count, movies * 5 // 8).astype(int)
    while (short := ratings - count.sum()) != 0:
        some = rng.integers(0, users, min(abs(short), users))
        change = np.bincount(some, minlength=users) * np.sign(short)
        changed = np.clip(count + change, least, movies * 5 // 8)
        if (changed == count).all():
            break
        count = changed
    popularity = rng.lognormal(np.log(124), 1.25, movies)
    scale = np.sqrt(0.35 / np.sqrt(8))
    user_taste, movie_taste = rng.normal(0, scale, (users, 8)), rng.normal(0, scale, (movies, 8))
    of_user = rng.normal(0, 0.45, users)
    of_movie = rng.normal(0, 0.6, movies) + 0.15 * (np.log(popularity) - np.log(popularity).mean())
    chosen = []
    for person, seen in enumerate(count):
        liking = np.log(popularity) + rng.gumbel(size=movies) + movie_taste @ user_taste[person]
        chosen.append(np.sort(np.argpartition(-liking, seen - 1)[:seen]))
    user, movie = np.repeat(np.arange(users), count), np.concatenate(chosen)
    latent = of_user[user] + of_movie[movie] + np.sum(user_taste[user] * movie_taste[movie], 1)
    latent += rng.normal(0, 0.85, len(user))
    shares = np.cumsum([56_174, 107_557, 261_197, 348_971]) / 1_000_209
    stars = 1 + np.searchsorted(np.quantile(latent, shares), latent)
    return {
        "user": user.astype(np.int32), "movie": movie.astype(np.int32), "stars": stars.astype(np.float32),
        "user_taste": user_taste.astype(np.float32), "movie_taste": movie_taste.astype(np.float32),
    }  # fmt: skip
