"""Those of the five private jobs that OpenDP does."""

from work import CHOICE_EPSILON, EPSILON, PRIVATE, SITES, TRAIN, gain, off, report


def choice():
    """A choice among five ads by private scores, for each of many requests."""
    import numpy as np
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    choose = dp.binary_search_chain(
        lambda scale: dp.m.make_noisy_max(*space, dp.max_divergence(), scale), d_in=1.0, d_out=CHOICE_EPSILON
    )
    return gain(np.array([choose(scores) for scores in PRIVATE.tolist()]))


def histogram():
    """Counts of a column, one row per person."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
    count = space >> dp.t.then_count_by_categories(SITES, null_category=False)
    release = dp.binary_search_chain(lambda scale: count >> dp.m.then_laplace(scale), d_in=1, d_out=EPSILON)
    return off(release(TRAIN.site.tolist()))


if __name__ == "__main__":
    report(choice, histogram)
