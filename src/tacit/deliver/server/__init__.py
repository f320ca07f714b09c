"""The ad server: which few ads to send to a device that disclosed no more than a node of the hierarchy.

estimates, shrinkage, moment_shrinkage   click rates from exact or noisy counts
rate_book                                public rates by context and campaign, as menus are made of them
released_statistics, modelled_rates      what rounds released, as rates; a model's rates, corrected by it
conversion_rates                         rates of conversions, corrected by what rounds counted of them
values, selection, candidates            what ads pay and are worth, which k to send, the answer and its prices
report_chances, prior_evidence           how likely reports are under each law, and which prior they speak for
evidence_store                           what is asked of a store of that evidence
ratio_counts                             the prior from counted ratios
competition, market                      who competes where; menus of campaigns, made again where they change
cohorts, traffic_file                    epochs and contexts that hide reports, planned from counted traffic
pacing                                   how much of a campaign may be out at once: contexts and tokens
advertiser_report, report_files           what an advertiser is told of impressions and spend; CSV, Parquet
rate_intervals                           rates of noisy counts, with intervals that include the noise
choice_logs                              what may be exported of choices, and counts from them

Source: Hardt and Nath, Privacy-aware personalization for mobile advertising, CCS 2012, sections 3.2 and 3.3.
"""
