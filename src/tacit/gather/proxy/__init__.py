"""The proxy: it takes devices' uploads, and sees masked vectors and sealed seeds.

`party`    uploads in, jobs and one noisy share out; `drive` takes a round to its end
`reports`  checks uploads, puts them into jobs, and settles the replies
`store`    the Protocol of what the proxy needs kept
"""
