import dataclasses

import numpy as np
import pytest
import statsmodels.api as sm

from softbench.stats import clustered_stderrs
from softbench.stats.variance import clustered_stderr, spread_over_seeds
from tests.unit.test_ranking import made_run


def test_a_clustered_error_is_that_of_statsmodels() -> None:
    generator = np.random.default_rng(0)
    clusters = generator.integers(0, 30, 400)
    values = (generator.random(30)[clusters] > generator.random(400)).astype(float)
    model = sm.OLS(values, np.ones(400))
    # statsmodels multiplies by (n - 1) / (n - 1) for one column: what is left is G / (G - 1).
    theirs = model.fit(cov_type="cluster", cov_kwds={"groups": clusters}).bse[0]
    assert clustered_stderr(list(values), list(clusters)) == pytest.approx(theirs, rel=1e-9)


def test_clusters_of_one_sample_give_the_usual_error() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    assert clustered_stderr(values, list("abcde")) == pytest.approx(np.std(values, ddof=1) / np.sqrt(5))


def test_one_cluster_says_nothing() -> None:
    assert clustered_stderr([0.0, 1.0], ["a", "a"]) is None
    assert clustered_stderr([], []) is None


def test_samples_that_repeat_add_no_certainty() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    once = clustered_stderr(values, list("abcde"))
    assert clustered_stderr(values * 3, list("abcde") * 3) == pytest.approx(once)


def test_seeds_and_samples_are_told_apart() -> None:
    spread = spread_over_seeds([[True, True, False, False], [True, True, True, False]])
    assert spread.num_seeds == 2
    assert spread.mean == pytest.approx(0.625)
    assert spread.between_seeds == pytest.approx(np.std([0.5, 0.75], ddof=1))
    assert spread.sampling == pytest.approx((0.625 * 0.375 / 4) ** 0.5)
    assert spread_over_seeds([[True, False]]).between_seeds is None
    with pytest.raises(ValueError, match="no seed with a sample"):
        spread_over_seeds([])


def test_shares_have_clustered_errors_where_samples_share_a_passage() -> None:
    base = made_run("m", {"soft": 0.5}, n=60)[0].records
    assert clustered_stderrs(base) == {}
    passages = [
        dataclasses.replace(one, sample=dataclasses.replace(one.sample, cluster=str(place // 3)))
        for place, one in enumerate(base)
    ]
    found = clustered_stderrs(passages)
    wanted = clustered_stderr([float(bool(one.correct)) for one in base], [place // 3 for place in range(60)])
    assert found["accuracy"] == pytest.approx(wanted)
    assert found["format_following"] == 0.0
    assert set(found) == {"accuracy", "format_following"}  # nothing else was asked
    alone = [dataclasses.replace(one, sample=dataclasses.replace(one.sample, cluster=one.sample.id)) for one in base]
    assert clustered_stderrs(alone) == {}
