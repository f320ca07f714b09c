"""What the ad server and the device both know: public data, and what anybody can compute from it.

cuts           cuts of a tree of contexts, and the block of a cut that is disclosed
disclosure     privacy settings, and a public menu of cuts
minimum_users  cuts whose every block has enough users
menu           the ads that are sent for a disclosed context, ranked and priced
prices         price rules
priced_menus   menus as the bill lists and charges them, and back
packs          the ads of a menu with their caps, the same for all who ask
factor_laws    laws of a factor between private and public scores
priors         the same and other laws, mixtures, what was learnt; written in menus
ratio_bins     bins in which devices count ratios private / public
forecasts      what a private choice gains at each epsilon
plans          the law for one request, and what it spends
slate_plans    the same for several slots at once
"""
