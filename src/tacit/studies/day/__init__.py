"""One simulated day beside the same day without privacy, and without personalisation.

comparing   the three days, and what is measured of each
figures     what is drawn
telling     what came of it, in a table and a sentence
report      the page
"""
