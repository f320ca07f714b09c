"""One simulated day beside the same day without privacy, and without personalisation.

comparison   the three days, what is measured of each, and that in words
page         the figures and the page
"""
