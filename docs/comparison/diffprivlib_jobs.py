"""Those of the five private jobs that diffprivlib does."""

from work import CHOICE_EPSILON, EPSILON, PRIVATE, SITES, TEST, TRAIN, gain, off, report


def logistic():
    """A logistic regression of a frame, with pure epsilon."""
    import numpy as np
    import pandas as pd
    from diffprivlib.models import LogisticRegression
    from sklearn.metrics import roc_auc_score

    def features(frame):
        sites = pd.get_dummies(pd.Categorical(frame.site, SITES)).to_numpy(float)
        return np.c_[sites, frame.hour / 23, (frame.age - 18) / 61]

    model = LogisticRegression(epsilon=EPSILON, data_norm=3**0.5)
    model.fit(features(TRAIN), TRAIN.clicked)
    return f"AUC {roc_auc_score(TEST.clicked, model.decision_function(features(TEST))):.3f}"


def choice():
    """A choice among five ads by private scores, for each of many requests."""
    import numpy as np
    from diffprivlib.mechanisms import PermuteAndFlip

    choices = [
        PermuteAndFlip(epsilon=CHOICE_EPSILON, sensitivity=1, utility=list(scores)).randomise()
        for scores in PRIVATE
    ]
    return gain(np.array(choices))


def histogram():
    """Counts of a column, one row per person."""
    import pandas as pd
    from diffprivlib.tools import histogram

    codes = pd.Categorical(TRAIN.site, SITES).codes
    counts, _ = histogram(codes, epsilon=EPSILON, bins=len(SITES), range=(-0.5, len(SITES) - 0.5))
    return off(counts)


if __name__ == "__main__":
    report(logistic, choice, histogram)
