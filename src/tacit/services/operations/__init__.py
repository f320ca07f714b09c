"""What those who run a party see and set: both parties have the same.

settings   tables of a party's settings that are for its operators
metrics    figures for Prometheus at /metrics, and who may ask for them
readings   figures that are looked up: queues, epochs, budgets, rounds, disks
app        a party's app with all of it, and /readyz for load balancers
"""
