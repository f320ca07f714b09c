"""Five private jobs in tacit."""

from work import (  # isort: skip
    BATCH, CHOICE_EPSILON, DELTA, EPSILON, NOISE, PRIVATE, PUBLIC, ROWS, SITES, STEPS, TEST, TRAIN,
    gain, off, report,
)  # fmt: skip


def logistic():
    """A logistic regression of a frame, all columns private."""
    from sklearn.metrics import roc_auc_score

    import tacit

    model = tacit.Classifier(
        "logistic", method="dp-sgd", epsilon=EPSILON, delta=DELTA, sensitive=["site", "hour", "age"]
    )
    model.fit(TRAIN, "clicked")
    auc = roc_auc_score(TEST.clicked, model.predict_proba(TEST.drop(columns="clicked"))[:, 1])
    return f"AUC {auc:.3f}"


def schedule():
    """Epsilon of a schedule of DP-SGD."""
    import tacit
    from tacit.privacy import Relation, SubsampledGaussian

    release = SubsampledGaussian(NOISE, BATCH / ROWS, STEPS)
    return f"epsilon {tacit.epsilon(release, delta=DELTA, relation=Relation.ADD_REMOVE):.4f}"


def mlp():
    """A small network by DP-SGD: one hidden layer over embeddings."""
    from sklearn.metrics import roc_auc_score

    import tacit
    from tacit.train import DpSgd, Mlp, PrivateLearning

    method = DpSgd(EPSILON, DELTA, learning=PrivateLearning(epochs=5, batch=BATCH))
    network = Mlp(dim=4, public_layers=(), common_layers=(32,))
    model = tacit.Classifier(network, method=method, sensitive=["site", "hour", "age"])
    model.fit(TRAIN, "clicked")
    auc = roc_auc_score(TEST.clicked, model.predict_proba(TEST.drop(columns="clicked"))[:, 1])
    return f"AUC {auc:.3f}"


def choice():
    """A choice among five ads by private scores, for each of many requests."""
    from tacit import Entropy
    from tacit.deliver import Spread, plan_choice

    plan = plan_choice(PUBLIC, Spread(0.5), CHOICE_EPSILON)
    return gain(plan.choose(PRIVATE, Entropy().words))


def histogram():
    """Counts of a column, one row per person."""
    from tacit import Entropy
    from tacit.privacy import DiscreteLaplace

    noise = DiscreteLaplace(1 / EPSILON)
    counts = TRAIN.site.value_counts().reindex(SITES, fill_value=0).to_numpy()
    return off(counts + noise.sample_array(len(SITES), Entropy().words))


if __name__ == "__main__":
    report(logistic, schedule, mlp, choice, histogram)
